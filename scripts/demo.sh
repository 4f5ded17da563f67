# Text in, model out, and every number of it explained; the run stays in demo/ to look at.
set -e
mkdir -p demo
say() { printf '\n\033[1m%s\033[0m\n' "$1"; }
run() { printf '$ pellucid'; for word in "$@"; do case $word in *[\ \[]*) printf ' "%s"' "$word";; *) printf ' %s' "$word";; esac; done; printf '\n'; pellucid "$@"; }

say "1. Train a model on stories whose entropy is known: the gap to what no model can beat is on screen."
rm -rf demo/stories
run train stories out=demo/stories

say "2. A story that it has made up."
run generate demo/stories/model "Once upon a time" --temperature 0.7 --seed 3

say "3. Where one of its probabilities came from."
run explain demo/stories/model "Once upon a time there was a" --at "probs[t=7,v=112]" --depth 2

say "4. Whether its numbers can be trusted: two engines, several ways to the same number."
run verify demo/stories/model --quick

say "Next:"
cat <<'NEXT'
  .venv/bin/pellucid plot demo/stories -o demo/curves.html                              how it learned
  .venv/bin/pellucid explain demo/stories --at "blocks.1.mlp.up_proj.weight@305[3,17]"  how it learned one number
  .venv/bin/pellucid train my.txt --minutes 10                                          a model of your own text
  .venv/bin/pellucid learn 13                                                           how it works, with pencil and paper
NEXT
