"""/openapi.json: schemathesis makes requests up out of it, good and bad ones, always the same; none may end in a 5xx, hang, or be
answered otherwise than the document says. A longer run: scripts/load-tools.sh openapi."""
import os
import re

import hypothesis
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck

from conftest import ROOT, serving

EXAMPLES = 6  # of good and of bad requests, for each of the endpoints


@pytest.fixture(scope="module")
def tiny(request, tmp_path_factory):
    """A model that answers in no time, however much it is asked to say."""
    with serving(request, tmp_path_factory.mktemp("tiny"), "--model", "tests/vectors/tiny/llama", "--context-length", "64",
                 "--chat-template", "tests/load/plain.jinja") as address:
        yield address


@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode))
def test_what_schemathesis_asks_is_answered_as_the_document_says(tiny, mode):
    document = schemathesis.openapi.from_url(tiny + "/openapi.json")
    checks = [schemathesis.checks.not_a_server_error, schemathesis.specs.openapi.checks.content_type_conformance,
              schemathesis.specs.openapi.checks.response_schema_conformance]
    asked = 0
    for operation in document.get_all_operations():
        @hypothesis.settings(max_examples=EXAMPLES, derandomize=True, deadline=None, database=None,
                             phases=[hypothesis.Phase.generate], suppress_health_check=list(HealthCheck))
        @hypothesis.given(case=operation.ok().as_strategy(generation_mode=mode))
        def ask(case):
            nonlocal asked
            asked += 1
            case.validate_response(case.call(timeout=30), checks=checks)

        try:
            ask()
        except hypothesis.errors.Unsatisfiable:
            assert mode.is_negative, "only endpoints without a body take no bad requests"
    assert asked > 20
    audit = requests.get(tiny + "/debug/audit", timeout=10).json()
    assert audit["ok"] and audit["snapshot"]["leased_pages"] == 0, audit


def test_the_documents_table_and_openapi_list_the_same_endpoints(tiny):
    with open(os.path.join(ROOT, "docs/api.md")) as file:
        rows = re.findall(r"^\| ((?:GET|POST|PUT|DELETE)[^|]*)\|", file.read(), re.M)
    documented = set()
    for row in rows:
        methods = re.findall(r"GET|POST|PUT|DELETE", row)
        paths = [path.split("?")[0] for path in re.findall(r"/[\w./-]*", row)]
        paths += ["/" + alias for alias in re.findall(r"\((get_\w+)\)", row)]
        documented |= {(method, path) for method in methods for path in paths}
    served = {(method.upper(), path) for path, methods in requests.get(tiny + "/openapi.json").json()["paths"].items()
              for method in methods}
    assert documented == served
