#!/bin/sh
# The tests of the compiled decoder with a library that checks every memory access and every undefined operation.
# A found access is printed after the tests, without the frames of Python; a found operation where it happens.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
built=$(python - "$folder" << 'END'
import sys
from pathlib import Path
from pellucid.engine.cpu import library
checked = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer")
name = next(name for name in library.SETS if library._may_have(name))
print(library.build(name, library.find_compiler(), Path(sys.argv[1]), checked))
END
)
preload="$(cc -print-file-name=libasan.so) $(cc -print-file-name=libubsan.so)"
status=0
# A file cannot be captured; beside the other sanitizer the one of operations knows no file, so nothing is captured.
# A signal is the sanitizer's to report, with the frame that raised it, and not Python's faulthandler's.
PELLUCID_NATIVE="$built" LD_PRELOAD="$preload" \
  ASAN_OPTIONS="log_path=$folder/found:detect_leaks=0:verify_asan_link_order=0" \
  python -m pytest -q --capture=no -p no:cacheprovider -p no:faulthandler tests/engine/cpu \
  -k "not instruction_set and not library" "$@" || status=$?
for found in "$folder"/found.*; do
  [ -e "$found" ] || continue
  sed -E '/^Shadow bytes/,$d; /^ +#[0-9]+ .*( (Python|Objects|Modules|Include|Parser)\/|_ctypes|libffi|libc-start|libc_start|in _start )/d' "$found"
  status=1
done
exit "$status"
