#!/usr/bin/env python3
"""Draws a flywheel's curve as a PNG: acceptance length against samples seen. Needs matplotlib.

  scripts/plot-flywheel.py output/h200-flywheel/flywheel --out docs/images/h200-flywheel.png

FOLDER holds flywheel.jsonl (docs/recipes.md, "The flywheel") and, under round-N/ or beside it as round-N.CONSUMER.log, the
trainers' logs. Lines: what training says of samples it has not yet trained on (first pass of a round over them, a running mean);
points: measured in service on prompts held out, with their 95% intervals; dashes: n-grams on the same prompts.
"""
import argparse
import glob
import json
import os

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

WINDOW = 50  # steps of the running mean


def steps_of(folder, number):
    """(cursor, accept_len) of a round's first trainer."""
    logs = glob.glob(f"{folder}/round-{number}.*.log") + glob.glob(f"{folder}/round-{number}/logs/*.log")
    for log in sorted(logs):
        found = [json.loads(line) for line in open(log, errors="replace") if line.startswith('{') and '"event":"step"' in line]
        if found:
            return [(event["cursor"], event["accept_len"]) for event in found]
    return []


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    rounds = [json.loads(line) for line in open(os.path.join(args.folder, "flywheel.jsonl"))]
    figure, axes = plt.subplots(figsize=(8, 4.5), dpi=120)
    shown = 0
    for entry in rounds:
        before, samples = shown, entry["samples"]
        fresh = [(before + cursor, length) for cursor, length in steps_of(args.folder, entry["round"]) if cursor <= samples]
        if before == 0 and len(fresh) > WINDOW:
            mean = [sum(l for _, l in fresh[i - WINDOW:i]) / WINDOW for i in range(WINDOW, len(fresh))]
            axes.plot([c for c, _ in fresh[WINDOW:]], mean, color="#7a8ba6", lw=1.2, label="training, samples not yet trained on")
        shown = entry["samples_seen"]
        for (name, draft), shade in zip(entry["drafts"].items(), (1.0, 0.45)):
            for key, mark, colour, who in (("", "o", "#1b6e3c", "held-out prompts"),
                                           ("eval_prompts", "s", "#b3541e", "ordinary prompts")):
                values = draft if not key else draft.get(key)
                if values:
                    label = f"{name} in service, {who}" if before == 0 else None
                    axes.errorbar(shown, values["accept_length"], yerr=values["ci95"], fmt=mark, color=colour, alpha=shade,
                                  capsize=3, label=label)
    ngram = rounds[0]["ngram"]
    axes.axhline(ngram["accept_length"], ls="--", lw=1, color="#1b6e3c", label="n-grams, held-out")
    if "eval_prompts" in ngram:
        axes.axhline(ngram["eval_prompts"]["accept_length"], ls="--", lw=1, color="#b3541e", label="n-grams, ordinary")
    axes.set_xlabel("samples of the rounds so far")
    axes.set_ylabel("acceptance length (bonus included)")
    axes.set_ylim(bottom=1)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="center right")
    figure.tight_layout()
    figure.savefig(args.out)


if __name__ == "__main__":
    main()
