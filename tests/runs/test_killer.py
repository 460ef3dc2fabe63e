"""Roles of a real run are killed outright at random moments; each is started again, and the run keeps every promise."""
import random
import time

import pytest

from conftest import FANOUT

ROUNDS = 20
KILLS = 3
ROLES = [("serve",), ("produce",), ("train", "b4"), ("train", "b8"), ("train", "b16")]


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_killed_roles_come_back_and_nothing_is_lost(make_run, seed):
    rng = random.Random(seed)
    run = make_run().start("levada.max_restarts=20", "training.save_interval=4",
                           FANOUT + "consumer_heartbeat_interval_s=0.5", FANOUT + "consumer_heartbeat_timeout_s=5",
                           FANOUT + "lease_ttl_s=5", FANOUT + "read_margin_s=1")
    run.until(lambda: run.pid_of("produce") is not None)
    killed = []
    for _ in range(KILLS):
        time.sleep(rng.uniform(0, 1.5))
        if run.launcher.poll() is None:
            role = rng.choice(ROLES)
            killed.append((role, run.kill(*role)))
    assert run.wait() == 0, f"killed {killed}\n{run.text()}"
    run.check_gate()
