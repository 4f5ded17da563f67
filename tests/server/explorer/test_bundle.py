"""The page as one file: joined modules, one policy, answers that cannot end their element."""

import base64
import hashlib
import json
import re

import pytest

from pellucid.server.explorer.bundle import encode_json, join_modules, make_document, make_question_string


def test_a_module_stands_after_those_that_it_imports_and_stands_once() -> None:
    sources = {
        "main.js": 'import { a } from "./a.js";\nimport {\n  b,\n} from "./b.js";\na(b);\n',
        "a.js": 'import { b } from "./b.js";\nexport async function a() {}\n',
        "b.js": "export const b = 1;\n",
    }
    assert join_modules(sources) == "const b = 1;\nasync function a() {}\na(b);\n"


def test_modules_that_import_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="each other"):
        join_modules({"main.js": 'import { a } from "./a.js";\n', "a.js": 'import { m } from "./main.js";\n'})


def test_the_joined_page_has_no_import_or_export_left() -> None:
    script = re.search(r'<script type="module">(.*?)</script>', make_document({}, ""), re.DOTALL)
    assert script is not None
    assert not re.search(r"^\s*(import|export)\b", script[1], re.MULTILINE)


def test_the_policy_names_the_script_and_the_style_that_stand_in_the_page() -> None:
    document = make_document({"session": "{}"}, "A title")
    for tag, start in (("script", '<script type="module">'), ("style", "<style>")):
        inner = document.partition(start)[2].partition(f"</{tag}>")[0]
        digest = base64.b64encode(hashlib.sha256(inner.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in document
    assert "<title>A title</title>" in document


@pytest.mark.parametrize("text", ["</script>", "<!--", "<script>", "\u2028", "\ud800", 'a"b\\', "&lt;", "'"])
def test_no_text_of_an_answer_can_end_its_element(text: str) -> None:
    document = make_document({"session": encode_json({"model": text})}, text)
    data = document.partition('id="answers">')[2].partition("</script>")[0]
    assert "<" not in data
    assert json.loads(data)["session"]["model"] == text
    document.encode()


def test_a_question_string_is_encoded_as_a_browser_does() -> None:
    asked = make_question_string("cell", {"trace": "t1", "at": "x[t='é',v=\"!*~(0)\"]", "flatten": True})
    assert asked == "cell?at=x%5Bt%3D'%C3%A9'%2Cv%3D%22!*~(0)%22%5D&flatten=true&trace=t1"
