"""Two examples for every command, printed in its help and on docs/commands.md; a test runs them all.

`my.txt` is any text, `runs/a` a run that the examples of `train` made, `answered.md` a sheet with answers.
"""

EXAMPLES = {
    "get": ("pellucid get smollm2", "pellucid get hf:HuggingFaceTB/SmolLM2-135M"),
    "list": ("pellucid list", "pellucid list --json"),
    "inspect": ("pellucid inspect smollm2-135m", "pellucid inspect runs/a/model --probe"),
    "choices": ("pellucid choices masks", "pellucid choices rope_yarn"),
    "train": ("pellucid train my.txt --minutes 10 out=runs/a", "pellucid train task:copy --dry-run"),
    "generate": (
        'pellucid generate runs/a "Once upon a time" --max-new-tokens 20',
        'pellucid generate abcd "A B" --temperature 1 --seed 0 --ledger --ledger-file ledger.json',
    ),
    "chat": ("pellucid chat smollm2", 'pellucid chat smollm2 --system "Answer in one sentence."'),
    "serve": ("pellucid serve smollm2", "pellucid serve runs/a --port 0 --name my-model --slots 8"),
    "evaluate": (
        "pellucid evaluate runs/a my.txt --split paragraph",
        "pellucid evaluate runs/a my.txt --against smollm2 --limit 2kB -o evaluation.json",
    ),
    "calibrate": (
        "pellucid calibrate runs/a my.txt --split paragraph -o calibration.html",
        "pellucid calibrate runs/a my.txt --quantize Q4_0 --temperatures 0.7,1.5 --trace calibration.json",
    ),
    "quantize": (
        "pellucid quantize runs/a --bits 8 -o my-int8",
        "pellucid quantize runs/a --bits 4 --keep embed.weight --bill --on my.txt --tokens 200",
    ),
    "explain": (
        'pellucid explain abcd "A B" --at "probs[t=1,v=2]" --depth 2',
        "pellucid explain ledger.json --token 7",
    ),
    "explore": (
        'pellucid explore smollm2 "The cat sat on"',
        'pellucid explore abcd "A B" --target C --update sgd --export ab.html',
    ),
    "trace": (
        'pellucid trace abcd "A B" -o ab.json',
        'pellucid trace abcd "A B" --target C --update adamw --lr 0.1 -o abc.json',
    ),
    "look": (
        'pellucid look abcd "A B" --token C --against A',
        'pellucid look abcd "A B" --show attribution,search --path reference -o look.html',
    ),
    "learn": ("pellucid learn", "pellucid learn 13 --answers"),
    "replay": ("pellucid replay ab.json", "pellucid replay ledger.json --model abcd"),
    "sheet": (
        "pellucid sheet lesson-13 -o lesson-13.html",
        'pellucid sheet abcd "A B" --target C --focus "d.unembed.weight" --boxes 60 -o ab.md',
    ),
    "runs": ("pellucid runs", "pellucid runs runs/a --json"),
    "plot": ("pellucid plot runs/a", "pellucid plot runs/a -o a.html"),
    "mark": ("pellucid mark answered.md", "pellucid mark answered.md --hint 1"),
    "verify": ("pellucid verify abcd --quick --json", "pellucid verify --self"),
    "compare": ('pellucid compare abcd abcd "A B"', "pellucid compare abc.json ab.json"),
    "export": (
        "pellucid export runs/a --to pellucid -o my-model",
        "pellucid export runs/a --to pellucid --dtype bfloat16 -o my-small-model",
    ),
    "import": (
        "pellucid import checkpoint/ -o imported",
        "pellucid import checkpoint/pytorch_model.bin --dtype bfloat16 -o imported-bfloat16",
    ),
    "tokenizer train": (
        "pellucid tokenizer train my.txt --vocab-size 300 -o my-tokenizer",
        "pellucid tokenizer train my.txt --kind characters -o my-characters",
    ),
    "tokenizer encode": (
        'pellucid tokenizer encode my-tokenizer "Once upon a time"',
        'pellucid tokenizer encode my-tokenizer "Once upon a time" --json',
    ),
    "tokenizer decode": (
        "pellucid tokenizer decode my-tokenizer 79 110 99 101",
        'pellucid tokenizer encode my-tokenizer "Once" | pellucid tokenizer decode my-tokenizer',
    ),
    "tokenizer explain": (
        'pellucid tokenizer explain my-tokenizer "Once upon a time"',
        'pellucid tokenizer explain my-tokenizer "Once upon a time" --words 2',
    ),
    "tokenizer compare": (
        "pellucid tokenizer compare my-tokenizer bytes --on my.txt stories:tiny",
        "pellucid tokenizer compare my-tokenizer bytes --on my.txt --d-model 256 -o tokenizers.html",
    ),
    "data prepare": (
        "pellucid data prepare my.txt --tokenizer my-tokenizer -o my-tokens",
        "pellucid data prepare my.txt --tokenizer my-tokenizer --split line --validation 0.1 -o my-lines",
    ),
    "data show": ("pellucid data show my-tokens", "pellucid data show stories:easy --samples 1"),
}
