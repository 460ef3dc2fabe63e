"""The flywheel's proof: a recipe runs unattended while random roles are killed outright; then everything is checked.

    python3 tests/load/flywheel_kills.py recipes/flywheel-smollm2.yaml --minutes 30 --every 120

Every role must come back, the history must be whole, nothing may be left behind, and a promoted draft must be served at the
end whose acceptance exceeds the first evaluated checkpoint's by --gain and the n-grams' on the same prompts.
"""
import argparse
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ROLES = {"server": ("serve",), "flywheel": ("flywheel", "run"), "b4": ("train", "b4"), "second trainer": ("train", "!b4"),
         "registry and producer": ("produce",), "round's launcher": ("up", "--exit-when-done"), "synthesis": ("synthesize",)}


def processes(marks):
    """Command lines of the live processes that name one of these marks, by pid."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().decode(errors="replace").split("\0")
            with open(f"/proc/{pid}/stat") as file:
                state = file.read().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if state != "Z" and int(pid) != os.getpid() and any(mark in word for word in words for mark in marks):
            found[int(pid)] = words
    return found


def wears(words, role):
    return all((word[1:] not in words) if word.startswith("!") else word in words for word in role)


def read_json(file):
    try:
        with open(file) as text:
            return json.load(text)
    except (OSError, ValueError):
        return {}


class Proof:
    def __init__(self, args):
        self.args, self.out, self.kills = args, os.path.abspath(args.output), []
        shutil.rmtree(self.out, ignore_errors=True)
        os.makedirs(self.out)
        self.flywheel = os.path.join(self.out, "flywheel")
        self.marks = [self.out, f"127.0.0.1:{args.port}"]
        sets = [f"output_dir={self.out}", f"deployment.disaggregated.control_dir={self.out}/control",
                f"deployment.disaggregated.managed_local.capture_servers.0.port={args.port}", *args.set]
        words = [args.binary, "up", args.recipe, "--plain", *(word for one in sets for word in ("--set", one))]
        self.log = open(os.path.join(self.out, "up.log"), "w")
        self.launcher = subprocess.Popen(words, stdout=self.log, stderr=subprocess.STDOUT, cwd=ROOT)

    def roles(self):
        return {pid: name for pid, words in processes(self.marks).items() if pid != self.launcher.pid
                for name, role in ROLES.items() if wears(words, role)}

    def run(self):
        rng, begun = random.Random(self.args.seed), time.monotonic()
        end, next_kill = begun + 60 * self.args.minutes, begun + self.args.every
        while time.monotonic() < end:
            if self.launcher.poll() is not None:
                return
            # The last stretch is left alone, so that what was killed last can show that it came back.
            if time.monotonic() >= next_kill and time.monotonic() < end - self.args.every / 2:
                next_kill += self.args.every * rng.uniform(0.8, 1.2)
                alive = self.roles()
                # By role and not by process; one that was not killed yet goes first.
                names = sorted(set(alive.values()), key=lambda name: (sum(name == k for _, k in self.kills), rng.random()))
                if names:
                    pid = next(pid for pid, name in alive.items() if name == names[0])
                    os.kill(pid, signal.SIGKILL)
                    self.kills.append((round(time.monotonic() - begun), names[0]))
                    print(f"{self.kills[-1][0]:5d} s: killed {names[0]}, process {pid}", flush=True)
            time.sleep(0.2)

    def drafts(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.args.port}/drafts", timeout=30) as answer:
            return json.load(answer)

    def stop(self):
        self.launcher.send_signal(signal.SIGTERM)
        try:
            self.launcher.wait(120)
        except subprocess.TimeoutExpired:
            self.launcher.kill()
        self.log.close()


def rounds_of(flywheel, wrong):
    file = os.path.join(flywheel, "flywheel.jsonl")
    rounds = {}
    for text in open(file).read().splitlines() if os.path.exists(file) else []:
        try:
            line = json.loads(text)
        except ValueError:
            wrong.append(f"flywheel.jsonl has a line that is no JSON: {text[:80]}")
            continue
        rounds[line["round"]] = line  # a kill between the line and the state repeats it
    if sorted(rounds) != list(range(1, len(rounds) + 1)):
        wrong.append(f"rounds are not consecutive: {sorted(rounds)}")
    return [rounds[number] for number in sorted(rounds)]


def check_samples(flywheel, rounds, wrong):
    """What is measured on is never trained on, and no round has a sample twice."""
    ids = [tuple(json.loads(text)["input_ids"]) for text in open(os.path.join(flywheel, "held-out.jsonl"))]
    for folder in sorted(os.listdir(flywheel)):
        file = os.path.join(flywheel, folder, "train.jsonl")
        if not folder.startswith("round-") or not os.path.exists(file):
            continue
        trained = [tuple(json.loads(text)["input_ids"]) for text in open(file)]
        if len(set(trained)) != len(trained):
            wrong.append(f"{folder} trains a sample twice")
        if set(ids) & set(trained):
            wrong.append(f"{folder} trains on what is held out")
        captured = read_json(os.path.join(flywheel, folder, "summary.json"))
        ended = int(folder.split("-")[1]) <= rounds  # the one under way was stopped with everybody
        if ended and captured and not (captured["ok"] and captured["captures"] == captured["entries_total"] + captured["recaptures"]
                             and captured["entries_absent"] == captured["entries_total"]):
            wrong.append(f"{folder} lost samples or took some twice: {captured}")


def table(rounds, args, wrong):
    first = rounds[0]["drafts"]
    print("round  samples seen  " + "  ".join(f"{name:>14}" for name in first) + "          in service         n-grams  promoted")
    text = lambda one: f"{one['accept_length']:6.2f} ± {one['ci95']:4.2f}"
    for line in rounds:
        print(f"{line['round']:5d}  {line['samples_seen']:12d}  " + "  ".join(f"{text(one):>14}" for one in line["drafts"].values())
              + f"  {text(line['before']):>18}  {text(line['ngram']):>14}  {line['promoted'] or '-'}")
    promotions = [line["drafts"][line["promoted"]] for line in rounds if line["promoted"]]
    if not promotions:
        return wrong.append("no draft was promoted")
    best, ngram = promotions[-1], rounds[-1]["ngram"]
    start = max(first.values(), key=lambda one: one["accept_length"])  # the better of the first round's
    gain = best["accept_length"] - start["accept_length"]
    both = math.hypot(best["ci95"], start["ci95"])
    print(f"first evaluated {text(start)}, promoted {text(best)}, n-grams {text(ngram)} on {best['prompts']} prompts; "
          f"gain {gain:.2f} ± {both:.2f} (95%, as if the prompts were not the same)")
    if not args.machinery_only:
        if gain < args.gain:
            wrong.append(f"the promoted draft gains {gain:.2f} over the first evaluated one, {args.gain} are asked for")
        if best["accept_length"] <= ngram["accept_length"]:
            wrong.append("the promoted draft is no better than n-grams")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipe")
    parser.add_argument("--binary", default=os.path.join(ROOT, "build/release/levada"))
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--every", type=float, default=120, help="seconds between kills, on average")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--gain", type=float, default=0.3)
    parser.add_argument("--port", type=int, default=31955)
    parser.add_argument("--output", default="/tmp/flywheel-kills", help="folder of the run; deleted first")
    parser.add_argument("--machinery-only", action="store_true", help="asks for no acceptance")
    parser.add_argument("--set", action="append", default=[], help="more --set of levada up")
    args = parser.parse_args()
    before = set(os.listdir("/dev/shm"))
    proof, wrong, state = Proof(args), [], {}
    try:
        proof.run()
        if proof.launcher.poll() is not None:
            wrong.append(f"levada up ended by itself with {proof.launcher.returncode}")
        else:
            up = read_json(f"{proof.out}/control/up.json")
            wrong += [f"{role['label']} is {role['state']}" for role in up.get("roles", []) if role["state"] not in ("running", "ready")]
            state = read_json(os.path.join(proof.flywheel, "state.json"))
            serving = proof.drafts()["serving"]
            if not state.get("promoted") or serving is None:
                wrong.append(f"no promoted draft is served: state {state.get('promoted')!r}, serving {serving}")
    finally:
        proof.stop()
    left = processes(proof.marks)
    wrong += [f"left behind: {pid} {' '.join(words)[:120]}" for pid, words in left.items()]
    wrong += [f"left in /dev/shm: {name}" for name in set(os.listdir("/dev/shm")) - before if "levada" in name]
    rounds = rounds_of(proof.flywheel, wrong)
    if state and rounds and state["round"] not in (rounds[-1]["round"], rounds[-1]["round"] + 1):
        wrong.append(f"state.json is at round {state['round']}, the history at {rounds[-1]['round']}")
    print(f"{len(proof.kills)} kills: " + ", ".join(f"{name} at {at} s" for at, name in proof.kills))
    if rounds:
        check_samples(proof.flywheel, len(rounds), wrong)
        table(rounds, args, wrong)
    else:
        wrong.append("no round came to its end")
    for one in wrong:
        print("WRONG: " + one)
    print("failed" if wrong else "passed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
