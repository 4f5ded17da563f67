"""The example that the command prints works as it is, and shows no key."""

import dataclasses
import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

from pellucid.formats.resolve import open_model
from pellucid.server.openai.serve import choose_request, make_curl_line

URL = "http://127.0.0.1:8000"


def expand(line: str, folder: Path) -> list[str]:
    """Returns the words of a line after the shell has expanded it."""
    script = f"set -- {line}; printf '%s\\n' \"$@\""
    variables = {"PELLUCID_API_KEY": "from the environment"}
    done = subprocess.run(["sh", "-c", script], cwd=folder, env=variables, capture_output=True, check=True)
    return done.stdout.decode().splitlines()


def read_body(line: str) -> Any:
    return json.loads(shlex.split(line)[-1])


def test_a_model_with_a_template_is_asked_a_question(tiny_model: Path) -> None:
    line = make_curl_line(URL, open_model(tiny_model), has_key=False)
    assert f"{URL}/v1/chat/completions" in line and "Authorization" not in line
    assert read_body(line)["messages"][0]["role"] == "user"


def test_an_ipv6_address_reaches_curl_through_any_shell(tmp_path: Path) -> None:
    url = "http://[::1]:8000"
    line = make_curl_line(url, open_model("abcd"), has_key=False)
    assert f"'{url}/v1/completions'" in line and f"{url}/v1/completions" in expand(line, tmp_path)


def test_a_model_without_one_goes_on_with_what_it_can_read(tiny_model: Path) -> None:
    without = dataclasses.replace(open_model(tiny_model), chat_template=None)
    path, body = choose_request(without)
    assert (
        path == "completions" and without.tokenizer is not None and without.tokenizer.encode(body["prompt"])
    )
    assert choose_request(open_model("abcd"))[1]["prompt"] == [0]


def test_the_key_is_read_by_the_shell(tmp_path: Path, tiny_model: Path) -> None:
    pretrained, file = open_model(tiny_model), tmp_path / "a key's file"
    file.write_text("from the file\n")
    for given, wanted in ((file, "from the file"), (None, "from the environment")):
        line = make_curl_line(URL, pretrained, has_key=True, key_file=given)
        assert wanted not in line and f"Authorization: Bearer {wanted}" in expand(line, tmp_path)
