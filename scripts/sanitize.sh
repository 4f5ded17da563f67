#!/bin/sh
# The tests of the compiled decoder with a library that checks every memory access and every undefined operation.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
built=$(python - "$folder" << 'END'
import sys
from pathlib import Path
from pellucid.native import library
checked = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer")
name = next(name for name in library.SETS if library._may_have(name))
print(library.build(name, library.find_compiler(), Path(sys.argv[1]), checked))
END
)
preload="$(cc -print-file-name=libasan.so) $(cc -print-file-name=libubsan.so)"
export PELLUCID_NATIVE="$built" LD_PRELOAD="$preload" ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0
python -m pytest -q --capture=no -p no:cacheprovider tests/native -k "not instruction_set and not library" "$@"
