#!/usr/bin/env python3
"""Rebuilds python-reference.jsonl: questions on passages of the Python language reference, as packaged by Debian 12.

The passages stand in pydoc_data/topics.py of the package libpython3.11-stdlib (what `help('assert')` shows); the questions
around them are ours. The same package gives the same file, byte for byte:

    python3 recipes/prompts/make_python_reference.py > recipes/prompts/python-reference.jsonl
"""
import json
import pydoc_data.topics
import re
import sys

QUESTIONS = [
    "Explain this passage of the Python reference to a beginner, with one short example:\n\n{}",
    "What does this paragraph of the Python reference mean in practice?\n\n{}",
    "Summarise these sentences in your own words:\n\n{}",
    "Which mistake does this rule of the Python language prevent?\n\n{}",
]
SHORTEST, LONGEST = 120, 420  # letters of a passage


def passage(topic):
    """The first paragraph of plain prose that is neither heading, code, grammar nor list; None if there is none."""
    for paragraph in topic.split("\n\n"):
        lines = paragraph.strip("\n").split("\n")
        text = " ".join(line.strip() for line in lines)
        prose = not paragraph.startswith((" ", "*", "-", "+", "|")) and "::=" not in text and "====" not in text
        if prose and text.endswith(".") and SHORTEST <= len(text) <= LONGEST and text.isascii():
            return re.sub(r'"([^"]*)"', r"`\1`", text)
    return None


def main():
    seen = set()
    count = 0
    for name, topic in sorted(pydoc_data.topics.topics.items()):
        text = passage(topic)
        if text is None or text in seen:
            continue
        seen.add(text)
        line = {"id": "python-reference-" + re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-"),
                "prompt": QUESTIONS[count % len(QUESTIONS)].format(text)}
        sys.stdout.write(json.dumps(line) + "\n")
        count += 1


if __name__ == "__main__":
    main()
