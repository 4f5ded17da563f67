"""Faults of generation: in the draw and its random numbers, in samplers, in what the engine reads and keeps,
in beams, proposed tokens and a full context, and in what it reports."""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from pellucid.engine.dropout import Dropout
from pellucid.engine.transformer import Transformer
from pellucid.evaluation.score import Score
from pellucid.generation import handle, output, slots
from pellucid.generation.samplers import chain, drawn_token
from pellucid.generation.samplers.row_operations import ROW_OPERATIONS
from pellucid.generation.strategies import beam_search, sample, speculative
from pellucid.model import Model
from pellucid.parts.samplers.banned_tokens import BannedTokens
from pellucid.parts.samplers.frequency_penalty import FrequencyPenalty
from pellucid.parts.samplers.logit_bias import LogitBias
from pellucid.parts.samplers.min_new_tokens import MinNewTokens
from pellucid.parts.samplers.min_p import MinP
from pellucid.parts.samplers.presence_penalty import PresencePenalty
from pellucid.parts.samplers.repetition_penalty import RepetitionPenalty
from pellucid.parts.samplers.temperature import Temperature
from pellucid.parts.samplers.top_p import TopP
from pellucid.parts.samplers.typical_p import TypicalP
from tests.faults.fault import Patch, around, fault, replacing
from tests.faults.subjects import SUBJECTS, Subject, verify_model, void
from tests.formats.gguf import random_models
from tests.model import folders

Wrong = Callable[..., Any]
sampled = functools.partial(fault, "generation", check="sampled")
generated = functools.partial(fault, "generation", check="generated")
repeated = functools.partial(fault, "generation", check="repeated")

SUBJECTS["long context"] = Subject(
    lambda folder: void(folders.ours(folder / "model", random_models.LLAMA | {"context_length": 160})),
    lambda folder, check: verify_model(folder / "model", check),
)


# ---- temperature


@sampled(subject="llama", at="sampling.temperature")
def temperature_is_inverted(patch: Patch) -> None:
    """Scores are multiplied by the temperature."""
    patch.setitem(ROW_OPERATIONS, "temper", lambda scores, temperature: scores * temperature)


@sampled(subject="bloom", at="sampling.temperature")
def temperature_is_applied_twice(patch: Patch) -> None:
    """Scores are divided by the temperature in the sampler and again in the draw."""
    patch.setitem(ROW_OPERATIONS, "temper", lambda scores, temperature: scores / temperature**2)


@sampled(subject="qwen3", at="sampling.temperature")
def temperature_is_ignored(patch: Patch) -> None:
    """Every temperature above 0 draws from the model's own probabilities."""
    patch.setitem(ROW_OPERATIONS, "temper", lambda scores, temperature: scores)


@sampled(subject="gpt2", at="sampling.top_p")
def temperature_comes_after_top_p(patch: Patch) -> None:
    """Top-p cuts the model's own probabilities, not those that are drawn from."""
    patch.setattr(Temperature, "order", 115)


# ---- the draw


@sampled(subject="gpt2", at="sampling.draw")
@replacing(drawn_token, "find_place")
def draw_never_gives_the_first_token(right: Any, reached: Any, u: Any) -> Any:
    """The search for u in the cumulative probabilities begins at the second token."""
    return min(max(right(reached, u), 1), len(reached) - 1)


@sampled(subject="mistral", at="sampling.draw")
@replacing(drawn_token, "find_place")
def draw_is_off_by_one_place(right: Any, reached: Any, u: Any) -> Any:
    """The token after the one whose cumulative probability exceeds u is taken."""
    return min(right(reached, u) + 1, len(reached) - 1)


@sampled(subject="qwen2", at="sampling.draw")
@replacing(drawn_token, "find_place")
def draw_uses_unnormalized_probabilities(right: Any, reached: Any, u: Any) -> Any:
    """u is looked for in the cumulative sums of e^(s − max s), which do not end at 1."""
    return right(reached / reached[0], u)


@sampled(subject="llama", at="sampling.greedy")
def greedy_takes_the_smallest_logit(patch: Patch) -> None:
    """The sort of greedy decoding is ascending."""
    around(patch, chain, "find_largest", lambda right, logits: right(-logits))


# ---- its random numbers


@sampled(subject="llama", at="sampling.u[place]")
def one_random_number_for_all_tokens_of_a_text(patch: Patch) -> None:
    """The generator is seeded again for each token."""
    around(patch, chain, "draw_uniform", lambda right, seed, choice, step: right(seed, choice, 0))


@sampled(subject="gpt2", at="sampling.u[choice]")
def one_random_number_for_all_choices(patch: Patch) -> None:
    """The choices of a request share one generator's state, so that they are one text."""
    around(patch, chain, "draw_uniform", lambda right, seed, choice, step: right(seed, 0, step))


@sampled(subject="gguf", at="sampling.u[seed]")
def seed_is_ignored(patch: Patch) -> None:
    """The request's seed never reaches the generator."""
    around(patch, chain, "draw_uniform", lambda right, seed, choice, step: right(0, choice, step))


@sampled(subject="bloom", at="sampling.u")
def random_numbers_of_choices_overlap(patch: Patch) -> None:
    """Choice 1 draws at its first token with what choice 0 has at its second."""
    around(patch, chain, "draw_uniform", lambda right, seed, choice, step: right(seed, 0, choice + step))


@sampled(subject="qwen2", at="sampling.u")
def random_numbers_are_below_one_half(patch: Patch) -> None:
    """A signed integer is scaled as an unsigned one."""
    around(patch, chain, "draw_uniform", lambda right, *key: right(*key) / 2)


# ---- samplers


@sampled(subject="llama", at="sampling.top_p")
def top_p_excludes_the_token_that_crosses(patch: Patch) -> None:
    """Only tokens whose own cumulative probability is within p are kept."""

    def apply(t: Any, scores: Any, mass: Any) -> Any:
        probs = t("probs", "softmax", scores)
        before = t("mass_before", "mass_before", probs, probs, limit=mass)
        is_first = probs >= probs.amax(-1, keepdim=True)
        return torch.where((before + probs < mass) | is_first, scores, -torch.inf)

    patch.setattr(TopP, "apply", staticmethod(apply))


@sampled(subject="bloom", at="sampling.top_k")
def top_k_keeps_one_more(patch: Patch) -> None:
    """The bound of top-k is the score after the k-th."""
    right = ROW_OPERATIONS["kth_largest"]
    patch.setitem(ROW_OPERATIONS, "kth_largest", lambda x, k: right(x, k + 1))


@sampled(subject="qwen3", at="sampling.top_k")
def top_k_keeps_one_fewer(patch: Patch) -> None:
    """Only scores above the k-th largest are kept."""
    right = ROW_OPERATIONS["kth_largest"]
    patch.setitem(ROW_OPERATIONS, "kth_largest", lambda x, k: right(x, (k - 1).clamp_min(1)))


@sampled(subject="mistral", at="sampling.min_p")
def min_p_is_relative_to_the_sum(patch: Patch) -> None:
    """Tokens below p are removed, not those below p times the largest probability."""

    def apply(t: Any, scores: Any, min_p: Any) -> Any:
        probs = t("probs", "softmax", scores)
        is_first = probs >= probs.amax(-1, keepdim=True)
        return torch.where((probs >= min_p) | is_first, scores, -torch.inf)

    patch.setattr(MinP, "apply", staticmethod(apply))


@sampled(subject="gpt2", at="sampling.typical_p")
def typical_p_sorts_by_probability(patch: Patch) -> None:
    """Typical sampling keeps what top-p keeps."""

    def apply(t: Any, scores: Any, mass: Any) -> Any:
        probs = t("probs", "softmax", scores)
        before = t("mass_before", "mass_before", probs, probs, limit=mass)
        return t("scores", "keep_below", scores, before, bound=mass)

    patch.setattr(TypicalP, "apply", staticmethod(apply))


@sampled(subject="qwen2", at="sampling.repetition_penalty")
def repetition_penalty_divides_negative_logits(patch: Patch) -> None:
    """A negative logit is divided too, so that its token gains."""

    def penalize(scores: Any, marked: Any, penalty: Any) -> Any:
        return torch.where(marked.bool(), scores / penalty, scores)

    patch.setitem(ROW_OPERATIONS, "penalize", penalize)


@sampled(subject="llama", at="sampling.repetition_penalty")
@replacing(RepetitionPenalty, "inputs")
def repetition_penalty_forgets_the_prompt(right: Wrong, self: Any, text: Any) -> Any:
    """Only tokens of the new text are penalized."""
    seen = np.zeros(text.vocab_size, bool)
    seen[np.asarray(text.new, int)] = True
    return right(self, text) | {"seen": seen}


@sampled(subject="bloom", at="sampling.frequency_penalty")
@replacing(FrequencyPenalty, "inputs")
def frequency_penalty_counts_the_prompt(right: Wrong, self: Any, text: Any) -> Any:
    """Tokens of the prompt count as generated ones."""
    counts = np.bincount([*text.prompt, *text.new], minlength=text.vocab_size).astype(float)
    return {"counts": counts, "alpha": -self.frequency_penalty}


@sampled(subject="gguf", at="sampling.presence_penalty")
@replacing(PresencePenalty, "inputs")
def presence_penalty_is_added(right: Wrong, self: Any, text: Any) -> Any:
    """The sign of the presence penalty is reversed."""
    found = right(self, text)
    return found and found | {"alpha": -found["alpha"]}


@sampled(subject="qwen3", at="sampling.logit_bias")
def logit_bias_comes_after_the_temperature(patch: Patch) -> None:
    """The bias is added to the scores that are already divided by the temperature."""
    patch.setattr(LogitBias, "order", 95)


@sampled(subject="mistral", at="sampling.banned_tokens")
def banned_tokens_are_banned_once(patch: Patch) -> None:
    """The mask of banned tokens is applied to the first new token only."""
    around(patch, BannedTokens, "inputs", lambda right, self, text: None if text.new else right(self, text))


@sampled(subject="gpt2", at="sampling.min_new_tokens")
def min_new_tokens_counts_the_prompt(patch: Patch) -> None:
    """A text may end at once after a prompt that is long enough."""
    around(patch, MinNewTokens, "inputs", lambda right, self, text: None)


# ---- what is read


@generated(subject="llama", at="generated[request=prefill chunk 2,token=0]")
@replacing(sample.TextRow, "make_feed")
def second_chunk_is_read_from_its_start(
    right: Wrong, self: Any, cache_slots: Any, *args: Any, **more: Any
) -> Any:
    """Each chunk after the first has the tokens from the beginning of the prompt."""
    feed, at = right(self, cache_slots, *args, **more), len(cache_slots.tokens[self.slot])
    segments = list[tuple[int, ...]]()
    for segment in feed.segments:
        is_later = at > 0 and len(segment) > 1
        segments.append(tuple(self.tokens[: len(segment)]) if is_later else segment)
        at += len(segment)
    return feed._replace(segments=tuple(segments))


@generated(subject="bloom", at="generated[request=one chunk,token=0]")
@replacing(sample.TextRow, "make_feed")
def last_token_of_a_prompt_is_lost(right: Wrong, self: Any, *args: Any, **more: Any) -> Any:
    """The last token of a prompt is read as the one before it."""
    feed = right(self, *args, **more)
    *before, last = feed.segments
    last = (*last[:-1], last[-2]) if len(last) > 1 else last
    return feed._replace(segments=(*before, last))


@generated(subject="long context", at="generated[request=prefill chunk 2 of 128 tokens,token=0]")
@replacing(sample.TextRow, "make_feed")
def second_whole_chunk_repeats_a_token(right: Wrong, self: Any, *args: Any, **more: Any) -> Any:
    """A prompt beyond 128 tokens has its 128th twice."""
    feed = right(self, *args, **more)
    if len(feed.segments) > 1 and len(feed.segments[0]) == 128:
        first, second, *rest = feed.segments
        feed = feed._replace(segments=(first, (first[-1], *second[:-1]), *rest))
    return feed


@generated(subject="qwen3", at="generated[request=one chunk beside other requests…")
@replacing(slots.CacheSlots, "forward")
def logits_of_ragged_rows_are_mixed(right: Wrong, self: Any, feeds: Sequence[Any]) -> Any:
    """After prompts of different lengths in one step, the rows of logits are in another order."""
    logits = right(self, feeds)
    return logits.flip(0) if len(feeds) > 1 else logits


@generated(subject="gpt2", at="generated[request=static slots…")
@replacing(slots.CacheSlots, "_decode_all")
def static_step_reads_rows_in_order(right: Wrong, self: Any, feeds: Any, decoded: Any, found: Any) -> None:
    """A step over all slots takes row i for the i-th text, not the row of its slot."""
    fresh: dict[int, list[Any]] = {at: [] for at in found}
    right(self, feeds, decoded, fresh)
    rows = sorted((feeds[at].slot, at) for at, parts in fresh.items() if parts)
    for shift, (_, at) in enumerate(rows):
        found[at] += fresh[rows[shift - 1][1]]


@generated(subject="qwen2", at="prompt_logprobs[request=prefill chunk 3,token=1]")
@replacing(sample.Sample, "_score_prompt")
def prompt_logprobs_are_shifted(right: Wrong, self: Any, logits: Any) -> None:
    """The log-probability of each token of the prompt is that under its own logits."""
    right(self, logits.roll(1, 0))


@generated(subject="gguf", at="Model.score[token=1]")
@replacing(Model, "score")
def score_reads_the_logits_after_the_token(
    right: Wrong, self: Any, prompt: Any, parse_special: bool = False
) -> Score:
    """`Model.score` takes each token's probability from the row of that token."""
    ids = self.encode(prompt, parse_special)
    own = torch.log_softmax(self.logits(ids).double(), -1)
    scored = [float(own[at, id]) for at, id in enumerate(ids)][1:]
    return Score(ids, [self.token(id) for id in ids], [None, *scored])


# ---- what is kept


@generated(subject="llama", at="generated[request=reused prefix,token=0]")
@replacing(slots.CacheSlots, "_find_shared")
def prefix_reuse_takes_one_token_too_many(right: Wrong, self: Any, prompt: Any) -> Any:
    """A slot takes one token more of another text than the two have in common."""
    source, shared = right(self, prompt)
    return source, shared + 1 if 0 < shared < len(prompt) - 1 else shared


@generated(subject="mistral", at="generated[request=reused slot…")
@replacing(slots.CacheSlots, "_take_prefix")
def slot_is_used_again_without_a_reset(right: Wrong, self: Any, slot: int, source: int, shared: int) -> None:
    """The keys of the text before stay in front of the new one."""
    if shared:
        right(self, slot, source, shared)
    self.tokens[slot], self.whole_chunks[slot] = self.tokens[slot][:shared], 0


@generated(subject="bloom", at="generated[request=choices…")
@replacing(slots.CacheSlots, "copy")
def choices_do_not_get_the_prompts_keys(right: Wrong, self: Any, source: int, target: int) -> None:
    """Forked choices have the tokens of the first one, and not its keys and values."""
    length = len(self.tokens[source])
    right(self, source, target)
    for layer in self.rows[target].layers:
        for buffer in layer.buffers:
            buffer[:, :, : length - 1] = buffer[:, :, 1:length].clone()


# ---- beams


@generated(subject="gpt2", at="generated[request=beams…")
@replacing(beam_search.Beams, "_continue")
def beams_keep_their_slots(right: Wrong, self: Any, running: Any) -> None:
    """The cache is not reordered where beams change places."""
    right(self, running)
    if len(self.rows) > 1:
        self.rows[0].slot, self.rows[1].slot = self.rows[1].slot, self.rows[0].slot


def _scale_penalty(patch: Patch, times: float) -> None:
    def wrong(right: Wrong, self: Any, *args: Any) -> None:
        right(self, *args)
        self.search.length_penalty *= times

    around(patch, beam_search.Beams, "__init__", wrong)


@generated(subject="llama", at="beams.score[choice=…")
def beam_score_has_no_length_penalty(patch: Patch) -> None:
    """The score of a beam is the sum of its log-probabilities."""
    _scale_penalty(patch, 0.0)


@generated(subject="qwen2", at="beams.score[choice=…")
def beam_score_has_the_length_penalty_twice(patch: Patch) -> None:
    """The sum of the log-probabilities is divided by the penalty when a beam ends and when it is ranked."""
    _scale_penalty(patch, 2.0)


@generated(subject="qwen3", at="beams.choices[…")
@replacing(beam_search.BeamSearch, "step")
def beams_continue_the_first_one_only(right: Wrong, self: Any, scores: Any, find_end: Any = None) -> Any:
    """Only the continuations of the best beam are ranked."""
    first = scores.clone()
    first[1:] -= 1e3 * math.log(2)
    return right(self, torch.cat((scores[:1], first[1:])), find_end)


# ---- proposed tokens


@generated(subject="llama", at="generated[request=lookup…")
@replacing(speculative, "draw_while_accepted")
def proposals_are_accepted_unseen(
    right: Wrong, first: Any, logits: Any, state: Any, proposed: Sequence[int], wanted: Any
) -> Iterator[Any]:
    """Proposed tokens are taken for those that the model would have drawn."""
    for row, id in enumerate(proposed):
        yield chain.Chosen(id, float(logits[row].double().log_softmax(-1)[id]))
    if not proposed:
        yield first


@generated(subject="gpt2", at="generated[request=lookup…")
def rejected_proposals_stay_in_the_cache(patch: Patch) -> None:
    """The slot forgets rejected tokens, and its keys and values remain."""

    def wrong(right: Wrong, self: Any, row: Any, *args: Any) -> None:
        slot = self.slots.rows[row.slot]
        with patch.context() as inner:
            inner.setattr(slot, "crop", lambda length: None)
            right(self, row, *args)

    around(patch, speculative.Speculate, "_append", wrong)


# ---- a full context


@generated(subject="bloom", at="generated[request=roll…")
@replacing(sample, "shorten")
def roll_forgets_the_first_tokens(right: Wrong, ids: Any, rule: str, keep: int, *sizes: Any) -> Any:
    """A rolling context keeps its last tokens and not the first ones."""
    return right(ids, "crop", 0, *sizes)


@generated(subject="qwen3", at="generated[request=crop…")
@replacing(sample, "shorten")
def crop_keeps_the_first_half(right: Wrong, ids: Any, *rule: Any) -> Any:
    """A full context goes on with its first half."""
    kept = right(ids, *rule)
    return list(ids[: len(kept)])


# ---- what is reported


@generated(subject="llama", at="stop token.finish")
@replacing(output.Output, "__init__")
def text_goes_on_after_a_stop_token(right: Wrong, self: Any, *args: Any) -> None:
    """The ids of stop tokens never reach the output."""
    right(self, *args)
    self.stop_ids = frozenset()


@generated(subject="mistral", at="stop token.finish")
@replacing(output.Output, "to_completion")
def stop_token_is_dropped(right: Wrong, self: Any) -> Any:
    """A text that ended by a stop token does not have it."""
    found = right(self)
    is_stopped = found.finish == "stop"
    return replace(found, ids=found.ids[:-1], logprobs=found.logprobs[:-1]) if is_stopped else found


@generated(subject="gpt2", at="generated[request=prefill chunk 2,token=0]")
@replacing(chain, "_choose")
def logprobs_are_taken_after_the_temperature(right: Wrong, states: Any, logits: Any, wanted: Any) -> Any:
    """The log-probability of a token is that with which it was drawn, not the model's own."""
    found = right(states, logits, wanted)
    own = chain.process(logits, states).log_softmax(-1)
    return [
        one if one.logprob is None else one._replace(logprob=float(own[row][one.id]))
        for row, one in enumerate(found)
    ]


@generated(subject="bloom", at="generated[request=one chunk,token=0]")
def logprobs_are_computed_in_float16(patch: Patch) -> None:
    """The softmax of log-probabilities is that of logits in 16 bits."""
    around(patch, chain, "compute_logprobs", lambda right, logits: right(logits.half().double()))


@generated(subject="qwen2", at="stream.finish")
@replacing(handle.Handle, "emit")
def stream_loses_a_token(right: Wrong, self: Any, token: Any) -> None:
    """The second token of a stream is never shown to its reader."""
    self.seen = getattr(self, "seen", 0) + 1
    if self.seen != 2:
        right(self, token)


# ---- again


@repeated(subject="gpt2", at="dropout")
def dropout_is_active_in_evaluation(patch: Patch) -> None:
    """Dropout does not ask for the mode of the model."""
    patch.setattr(Dropout, "current_rate", property(lambda self: self.rate))


@repeated(subject="llama", at="dropout (model)")
def model_is_loaded_in_training_mode(patch: Patch) -> None:
    """A loaded model is in training mode."""
    patch.setattr(Transformer, "eval", lambda self: self.train())


@repeated(subject="bloom", at="logits")
def forward_pass_leaves_a_state_behind(patch: Patch) -> None:
    """What a forward pass computes depends on those before it."""
    calls: list[int] = []

    def wrong(right: Wrong, self: Any, x: Any) -> Any:
        calls.append(1)
        return right(self, x) + 1e-3 * (len(calls) > 3)

    around(patch, Transformer, "logits", wrong)


@repeated(subject="qwen3", at="generate(seed=1) again")
def random_numbers_come_from_a_global_generator(patch: Patch) -> None:
    """Each draw advances one generator of the process."""
    shared = np.random.default_rng(0)
    around(patch, chain, "draw_uniform", lambda right, *key: float(shared.random()))


@repeated(subject="mistral", at="generate(seed=2) beside other requests")
@replacing(Transformer, "forward_packed")
def rows_of_a_batch_depend_on_each_other(right: Wrong, self: Any, rows: Any, wanted: Any) -> Any:
    """The kernel of a product is another one for several rows."""
    return right(self, rows, wanted) * (1 + 1e-6 * (len(rows) > 1))
