"""The flywheel on a tiny target: rounds on what clients ask, promotion in service, pauses, and roles that are killed."""
import json
import random
import threading
import time

import pytest
import requests

FANOUT = "deployment.disaggregated.windowed_fanout."
RULES = {"samples_per_round": 12, "min_samples": 6, "held_out_share": 0.3, "held_out_prompts": 4, "eval_max_tokens": 16,
         "keep_rounds": 2, "promote": {"min_gain": 0.0}}


class Clients:
    """Ask something new all the time; whoever was served must have been served right."""

    def __init__(self, run):
        self.url, self.over, self.served, self.wrong = f"http://127.0.0.1:{run.port}", threading.Event(), 0, []
        self.threads = [threading.Thread(target=self.ask, args=(seed,)) for seed in range(2)]
        for thread in self.threads:
            thread.start()

    def ask(self, seed):
        rng, known = random.Random(seed), []
        while not self.over.is_set():
            # Every fourth request repeats an old one: drafts may have come and gone since.
            ids, before = rng.choice(known) if known and rng.random() < 0.25 else ([rng.randrange(3, 380) for _ in range(9)], None)
            try:
                got = requests.post(self.url + "/generate", timeout=60, json={
                    "input_ids": ids, "sampling_params": {"temperature": 0, "max_new_tokens": 20, "ignore_eos": True}})
                assert got.status_code == 200 or got.status_code >= 500, got.text
                if got.status_code != 200:
                    continue
            except requests.RequestException:
                time.sleep(0.1)  # the server is being started again
                continue
            answer = got.json()["output_ids"]
            if before is not None and answer != before:
                self.wrong.append((ids, before, answer))
            known.append((ids, answer))
            self.served += 1
            time.sleep(0.02)

    def stop(self):
        self.over.set()
        for thread in self.threads:
            thread.join()


@pytest.fixture
def clients():
    asking = []

    def start(run):
        asking.append(Clients(run))
        return asking[-1]

    yield start
    for one in asking:
        one.stop()


def history(run):
    file = run.folder / "out/flywheel/flywheel.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def serving(run):
    run.until(lambda: run.pid_of("flywheel") is not None)


def start(make_run, **rules):
    run = make_run(consumers=((4, 64), (8, 128)), flywheel={**RULES, **rules})
    return run.start("levada.max_restarts=1000", "model.torch_dtype=float32", FANOUT + "consumer_heartbeat_interval_s=0.5",
                     FANOUT + "consumer_heartbeat_timeout_s=5", FANOUT + "lease_ttl_s=5", FANOUT + "read_margin_s=1")


def test_rounds_train_measure_and_promote(make_run, clients):
    # Few new samples a round: the others are those of the round before.
    run = start(make_run, rounds=4, min_samples=2)
    serving(run)
    asking = clients(run)
    assert run.wait() == 0, run.text()
    asking.stop()
    assert not asking.wrong, asking.wrong[:1]
    lines = history(run)
    assert [line["round"] for line in lines] == [1, 2, 3, 4]
    assert lines[-1]["samples_seen"] == sum(line["samples"] for line in lines)
    for line in lines:
        assert line["samples"] in (2, 4, 6, 8, 10, 12) and set(line["drafts"]) == {"b4", "b8"}
        measured = [line["before"], line["ngram"], *line["drafts"].values()]
        assert all(one["prompts"] == lines[-1]["ngram"]["prompts"] or line is lines[0] for one in measured)
        assert all(one["accept_length"] >= 1 and one["tokens_per_s"] > 0 for one in measured)
        best = max(line["drafts"], key=lambda name: line["drafts"][name]["accept_length"])
        better = line["drafts"][best]["accept_length"] > line["before"]["accept_length"]
        assert line["promoted"] == (best if better else None)
    folder = run.folder / "out/flywheel"
    ids = [json.loads(text)["task_id"] for file in folder.glob("round-*/train.jsonl") for text in open(file)]
    assert len(set(ids)) == len(ids), "each round has a sample captured under a name of its own"
    trained = [json.loads(text)["input_ids"] for file in folder.glob("round-*/train.jsonl") for text in open(file)]
    held_out = [json.loads(text)["input_ids"] for text in open(folder / "held-out.jsonl")]
    assert held_out and not [ids for ids in held_out if ids in trained]
    assert sorted(path.name for path in folder.glob("round-*")) == ["round-3", "round-4"]
    assert len(list((folder / "drafts").iterdir())) <= 4
    run.check_nothing_is_left()


def test_a_pause_stops_the_training_and_serving_goes_on(make_run, clients):
    run = start(make_run, rounds=2)
    serving(run)
    asking = clients(run)
    run.until(lambda: run.pid_of("train") is not None)
    (run.folder / "out/flywheel/pause").touch()
    run.until(lambda: run.pid_of("train") is None and run.pid_of("produce") is None)
    served = asking.served
    time.sleep(1.5)
    assert asking.served > served and run.pid_of("train") is None
    (run.folder / "out/flywheel/pause").unlink()
    assert run.wait() == 0, run.text()
    assert [line["round"] for line in history(run)] == [1, 2]


@pytest.mark.parametrize("seed", range(4))
def test_killed_roles_come_back(make_run, clients, seed):
    rng = random.Random(seed)
    run = start(make_run, rounds=4)
    serving(run)
    asking = clients(run)
    killed = []
    while run.launcher.poll() is None and len(killed) < 6:
        time.sleep(rng.uniform(0.5, 3))
        role = rng.choice([("serve",), ("flywheel",), ("produce",), ("train", "b4"), ("train", "b8"), ("up",)])
        killed.append((role, run.kill(*role) if run.launcher.poll() is None else None))
    assert run.wait(240) == 0, f"killed {killed}\n{run.text()}"
    asking.stop()
    assert not asking.wrong, asking.wrong[:1]
    rounds = [line["round"] for line in history(run)]
    assert rounds and rounds == sorted(rounds) and rounds[-1] <= 4, rounds
    run.check_nothing_is_left()
