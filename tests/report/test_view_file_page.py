"""The page of a view is one file of well-formed HTML whose texts are escaped."""

import re
from html.parser import HTMLParser

from pellucid.report.view_file import make_page
from tests.report.full_view import FULL


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in ("meta", "p", "path", "rect", "circle", "line"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("p", "path", "rect", "circle", "line"):
            assert self.open.pop() == tag


def test_a_page_is_well_formed_and_shows_no_text_as_markup() -> None:
    page = make_page("a<model", [["·The", "<b>"]], [FULL, FULL])
    tags = Tags()
    tags.feed(page)
    assert not tags.open
    assert "<b>" not in page and "·a&lt;b" in page and "Attention of &lt;b&gt;" in page
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert "{{" not in page and "<script" not in page and "http-equiv" in page
