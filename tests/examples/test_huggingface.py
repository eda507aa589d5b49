"""Causal models of transformers that train with BlackOut."""

import re

import pytest
import torch

pytest.importorskip("transformers")

import transformers

import blackout
from blackout.errors import UserError
from blackout.integrations.huggingface import from_pretrained, use_blackout

V = 300
NO_DROPOUT = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
SMALL = {"vocab_size": V, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
BODY = {
    "hidden_size": 32,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
}


def tied() -> transformers.PreTrainedModel:
    shape = {"n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 16}
    config = transformers.GPT2Config(**SMALL, **shape, **NO_DROPOUT)
    return transformers.GPT2LMHeadModel(config)


def untied() -> transformers.PreTrainedModel:
    config = transformers.LlamaConfig(**SMALL, **BODY, tie_word_embeddings=False)
    return transformers.LlamaForCausalLM(config)


def with_bias() -> transformers.PreTrainedModel:
    return transformers.PhiForCausalLM(transformers.PhiConfig(**SMALL, **BODY))


every_kind = pytest.mark.parametrize("make", [tied, untied, with_bias])


def words(seed: int = 0) -> torch.Tensor:
    """Each word is the one before plus 7."""
    start = torch.randint(V, (16, 1), generator=torch.Generator().manual_seed(seed))
    return (start + 7 * torch.arange(8)) % (V - 1) + 1  # 0 ends a text


@every_kind
def test_after_eval_the_loss_is_the_models_own(make):
    model, text = make().eval(), words()
    labels = text.clone()
    labels[3:, 4:] = -100  # counts for nothing
    with torch.no_grad():
        own = model(input_ids=text, labels=labels).loss
        logits = model(input_ids=text).logits
        use_blackout(model, samples=20)
        ours = model(input_ids=text, labels=labels)
        torch.testing.assert_close(ours.loss, own, rtol=1e-5, atol=1e-5)
        assert ours.logits is None
        assert torch.equal(model(input_ids=text).logits, logits)


@every_kind
def test_it_trains_saves_loads_and_generates(make, tmp_path):
    torch.manual_seed(0)
    model = use_blackout(make(), samples=100, counts=torch.arange(1, V + 1))
    optimizer = blackout.RMSProp(model.parameters(), lr=0.01, clip=1.0)
    for step in range(200):
        loss = model(input_ids=words(step), labels=words(step)).loss
        optimizer.zero_grad()
        loss.backward()
        assert model.get_output_embeddings().weight.grad.is_sparse
        assert model.get_input_embeddings().weight.grad.is_sparse
        optimizer.step()
    prompt = words(999)[:, :3]
    made = model.eval().generate(prompt, max_new_tokens=5, do_sample=False)
    right = made[:, 3:] == words(999)[:, 3:]
    assert float(right.float().mean()) > 0.5  # by chance one in 300

    model.save_pretrained(tmp_path)
    again = from_pretrained(tmp_path)
    own = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert type(own) in type(again).__mro__
    weights = [m.get_output_embeddings().weight for m in (model, again, own)]
    assert torch.equal(weights[0], weights[1])
    assert torch.equal(weights[0], weights[2])
    for other in (again, own):
        assert torch.equal(other.eval().generate(prompt, max_new_tokens=5, do_sample=False), made)
        is_tied = other.get_input_embeddings().weight is other.get_output_embeddings().weight
        assert is_tied == (make is tied)

    # training goes on as if nothing had happened: the same samples, the same loss
    losses = [m.train()(input_ids=prompt, labels=prompt).loss for m in (model, again)]
    assert torch.equal(*losses)
    draws = [m.blackout.draw(prompt).samples for m in (model, again)]
    assert torch.equal(*draws)


def test_a_divisor_for_accumulated_batches():
    model = use_blackout(untied(), samples=20).eval()
    text = words()
    plain = model(input_ids=text, labels=text).loss
    part = model(input_ids=text, labels=text, num_items_in_batch=2 * 16 * 7).loss
    torch.testing.assert_close(part, plain / 2)


def test_what_cannot_be_turned_is_refused(tmp_path):
    model = use_blackout(tied(), samples=20)
    with pytest.raises(UserError, match="already"):
        use_blackout(model)
    config = transformers.Gemma2Config(**SMALL, **BODY, num_key_value_heads=1, head_dim=8)
    with pytest.raises(UserError, match="final_logit_softcapping"):
        use_blackout(transformers.Gemma2ForCausalLM(config))
    with pytest.raises(UserError, match="no output table"):
        use_blackout(untied().model)
    with pytest.raises(UserError, match="a Linear is no model of transformers"):
        use_blackout(torch.nn.Linear(2, 3))
    tied().save_pretrained(tmp_path)
    with pytest.raises(UserError, match="use_blackout"):
        from_pretrained(tmp_path)


@every_kind
def test_a_model_that_was_refused_is_what_it_was(make):
    model = make()
    kind, config = type(model), model.config.to_dict()
    with pytest.raises(UserError, match="counts has 3 entries"):
        use_blackout(model, counts=torch.ones(3))
    assert type(model) is kind
    assert model.config.to_dict() == config
    text = words()
    assert use_blackout(model, samples=20)(input_ids=text, labels=text).loss.isfinite()


@every_kind
def test_the_loss_follows_a_resized_vocabulary(make):
    model = use_blackout(make(), samples=20, counts=torch.arange(1, V + 1))
    model(input_ids=words(), labels=words())
    model.resize_token_embeddings(V + 9)
    assert model.blackout.weight is model.get_output_embeddings().weight
    assert int(model.blackout.step) == 1
    share = model.blackout.proposal.marginal()
    assert share[V] == share[0] < share[1]
    model(input_ids=words() + 9, labels=words() + 9).loss.backward()
    assert model.get_output_embeddings().weight.grad.shape == (V + 9, 32)
    model.resize_token_embeddings(V - 50)
    assert model.blackout.n_classes == V - 50
    text = words() % (V - 50)
    own = torch.nn.functional.cross_entropy(
        model.eval()(input_ids=text).logits[:, :-1].flatten(0, 1), text[:, 1:].flatten()
    )
    torch.testing.assert_close(model(input_ids=text, labels=text).loss, own)


def test_a_run_of_trainer_is_resumed_exactly(tmp_path):
    from blackout.integrations.huggingface.trainer import Trainer

    def trained(folder: str, resume: str | None = None, **options) -> torch.Tensor:
        torch.manual_seed(0)
        model = use_blackout(untied(), samples=20, counts=torch.arange(1, V + 1))
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path / folder), max_steps=4, save_steps=2, learning_rate=0.01,
            max_grad_norm=0.5, report_to="none", use_cpu=True, disable_tqdm=True, **options,
        )  # fmt: skip
        rows = [{"input_ids": row, "labels": row} for row in words()]
        Trainer(model=model, args=arguments, train_dataset=rows).train(resume)
        return model.get_output_embeddings().weight.detach()

    straight = trained("a")
    resumed = trained("b", str(tmp_path / "a" / "checkpoint-2"))
    assert torch.equal(straight, resumed)
    with pytest.raises(UserError, match=r"label_smoothing_factor is 0\.1"):
        trained("c", label_smoothing_factor=0.1)


def test_the_example_under_trainer(run_example, tmp_path):
    options = ("--words", "500", "--sequences", "2000", "--steps", "120", "--folder", str(tmp_path))
    printed = run_example("with_huggingface.py", *options)
    assert "the same: True" in printed
    before, after = re.search(r"loss ([\d.]+) .*-> ([\d.]+)", printed).groups()
    assert float(after) < float(before) - 0.3
