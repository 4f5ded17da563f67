"""Write the lessons' sheets of level 3 from the pretrained models that their pages name; all of them, or
those of the lessons given by number. `pellucid get smollm2` fetches the model."""

import sys

from pellucid.learning.lessons.ladder import find_lesson, find_transfer_file, lessons, make_transfer
from pellucid.learning.sheets.file import format_sheet


def main() -> None:
    for lesson in map(find_lesson, sys.argv[1:] or lessons()):
        if lesson.page.head.transfer is not None:
            sheet = make_transfer(lesson)
            find_transfer_file(lesson).write_text(format_sheet(sheet), "utf-8")
            print(f"wrote {find_transfer_file(lesson).name}: {len(sheet.boxes)} boxes", flush=True)


if __name__ == "__main__":
    main()
