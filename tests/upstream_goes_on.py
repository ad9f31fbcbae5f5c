"""Goes on with a package of ours in the Python system that it is for, with nothing but what a user has there.

    upstream_goes_on.py TASK PACKAGE STEPS NOTES

TASK: whose package it is. STEPS: that it was trained for. NOTES: a file with what `melete export` said, the call that
builds the model among it. The system's own trainer loads the package, weights strictly, and takes a step on noise.
"""
import importlib
import math
import os
import pickle
import random
import re
import sys
import tempfile

import torch
from torch.utils.data import Dataset

BATCH = 2


class Noise(Dataset):
    """Items as `draw` makes them."""

    def __init__(self, draw):
        self.draw = draw

    def __len__(self):
        return 10 * BATCH

    def __getitem__(self, index):
        return self.draw()


def tokens(kinds, length):
    return torch.randint(0, kinds, (length,))


def without_t5():
    """audiolm-pytorch asks for T5's width by name, which is downloaded; the models here are told nothing."""
    import audiolm_pytorch.t5 as t5
    from transformers import T5Config

    t5.T5_CONFIGS[t5.DEFAULT_T5_NAME] = dict(config=T5Config(d_model=768))


def built(system):
    """The model by the call that is in the notes."""
    call = notes.split(f"{system.replace('_', '-')} builds this model with", 1)[1].split("\n\n")[0]
    *parts, model = [line.strip() for line in call.strip().splitlines()]
    names = dict(vars(importlib.import_module(system)))
    exec("\n".join([*parts, "model = " + model.removeprefix("mulan = ")]), names)
    return names["model"]


COMMON = dict(num_train_steps=100, batch_size=BATCH, valid_frac=0.5)
UNASKED = dict(force_clear_prev_results=False)  # or it asks on the terminal


def soundstream():
    randint = random.randint  # vector-quantize-pytorch asks for 0 to 1e7, which Python since 3.12 does not take
    random.randint = lambda low, high: randint(int(low), int(high))
    from audiolm_pytorch import SoundStream, SoundStreamTrainer

    model = SoundStream(**pickle.loads(package["config"]))
    trainer = SoundStreamTrainer(model, dataset=Noise(lambda: torch.randn(3200) * 0.1), grad_accum_every=1, **COMMON, **UNASKED)
    scales = {key: getattr(trainer, key) for key in package if key.startswith("multiscale_discr_optimizer_")}
    return trainer, model, dict(optim=trainer.optim, discr_optim=trainer.discr_optim, **scales)


def stage(name, draw, fields, codec=False):
    import audiolm_pytorch as system

    without_t5()
    model = built("audiolm_pytorch")
    given = dict(transformer=model, dataset=Noise(lambda: draw(model)), **COMMON, **UNASKED)
    if codec:
        given["codec"] = system.SoundStream(
            channels=4,
            strides=(2, 2),
            channel_mults=(1, 1),
            codebook_dim=8,
            use_local_attn=False,
            codebook_size=model.codebook_size,
            rq_num_quantizers=model.num_coarse_quantizers + getattr(model, "num_fine_quantizers", 1),
        )
    if name != "Fine":
        given["wav2vec"] = None
    if name == "Coarse":
        given["ds_fields"] = fields
    trainer = getattr(system, f"{name}TransformerTrainer")(**given)
    trainer.ds_fields = fields
    return trainer, model, dict(optim=trainer.optim)


def semantic():
    return stage("Semantic", lambda m: tokens(m.num_semantic_tokens, 24), ("semantic_token_ids",))


def coarse():
    draw = lambda m: (tokens(m.num_semantic_tokens, 8), tokens(m.codebook_size, 4 * m.num_coarse_quantizers))
    return stage("Coarse", draw, ("semantic_token_ids", "coarse_token_ids"), codec=True)


def fine():
    draw = lambda m: (tokens(m.codebook_size, 4 * m.num_coarse_quantizers), tokens(m.codebook_size, 4 * m.num_fine_quantizers))
    return stage("Fine", draw, ("coarse_token_ids", "fine_token_ids"), codec=True)


def spear(name, draw, **more):
    import spear_tts_pytorch as system

    model = built("spear_tts_pytorch")
    trainer = getattr(system, name)(model, dataset=Noise(lambda: draw(model)), num_warmup_steps=1, **COMMON, **UNASKED, **more)
    return trainer, model, dict(optim=trainer.optim)


def pair(model):
    return tokens(model.num_semantic_token_ids, 12), tokens(model.num_text_token_ids, 9)


def spear_pretrain():
    return spear("SpeechSpeechPretrainer", lambda m: tokens(m.num_semantic_token_ids, 20), wav2vec=None)


def spear_back_translate():
    return spear("SemanticToTextTrainer", pair)


def spear_text_to_semantic():
    frozen = int(re.search(r"freeze_encoder_layers_below = (\d+)", notes)[1])
    return spear("TextToSemanticTrainer", pair, freeze_encoder_layers_below=frozen)


def voicebox():
    import voicebox_pytorch as system

    network = built("voicebox_pytorch")
    model = system.ConditionalFlowMatcherWrapper(network)
    frames = Noise(lambda: torch.randn(20, network.null_cond.shape[0]))
    trainer = system.VoiceBoxTrainer(model, dataset=frames, num_warmup_steps=1, **COMMON, **UNASKED)
    return trainer, model, dict(optim=trainer.optim)


def mulan():
    from musiclm_pytorch import MuLaNTrainer

    model = built("musiclm_pytorch")
    words = model.text.token_emb.weight.shape[0]
    pairs = Noise(lambda: (torch.randn(16000) * 0.1, torch.randint(1, words, (12,))))
    trainer = MuLaNTrainer(model, dataset=pairs, **COMMON, **UNASKED)
    return trainer, model, dict(optim=trainer.optim)


def vqgan():
    import torchvision
    from PIL import Image

    vgg16 = torchvision.models.vgg16
    torchvision.models.vgg16 = lambda pretrained: vgg16()  # what it weighs is not the question
    from muse_maskgit_pytorch import VQGanVAETrainer

    model = built("muse_maskgit_pytorch")
    for i in range(10 * BATCH):
        Image.effect_noise((32, 32), 100).convert("RGB").save(f"{i}.png")
    trainer = VQGanVAETrainer(model, folder=".", image_size=32, results_folder="results", **COMMON)
    # Its optimisers take sets, so that none of its own packages fits in another process: see docs/muse.md.
    named = dict(model.named_parameters())
    for part, names in package["optimizer_parameter_order"].items():
        setattr(trainer, part, torch.optim.Adam([named[name] for name in names], lr=1e-4))
    return trainer, model, dict(optim=trainer.optim, discr_optim=trainer.discr_optim)


def plain(optimiser):
    """torch's own, below what a trainer wraps around it."""
    while hasattr(optimiser, "optimizer"):
        optimiser = optimiser.optimizer
    return optimiser


def check(trainer, model, optimisers):
    trainer.load(package_path)
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, package["model"][name].reshape(weight.shape)), name
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    for part, optimiser in optimisers.items():
        given = package[part].get("optimizer", package[part])["state"]
        optimiser = plain(optimiser)
        parameters = [p for group in optimiser.param_groups for p in group["params"]]
        assert len(given) > 0, part
        for index, state in given.items():
            mine = optimiser.state[parameters[index]]
            assert int(mine["step"]) == steps, (part, index, mine["step"])
            for moment in ("exp_avg", "exp_avg_sq"):
                assert mine[moment].shape == parameters[index].shape, (part, index, moment)
                assert torch.equal(mine[moment], state[moment]), (part, index, moment)
    logs = trainer.train_step()
    losses = {name: float(value) for name, value in logs.items() if "loss" in name}
    assert losses and all(map(math.isfinite, losses.values())), losses
    now = dict(model.named_parameters())  # a VGG may have come along
    moved = [name for name, weight in weights.items() if not torch.equal(now[name], weight)]
    assert len(moved) > 5, moved
    assert all(torch.isfinite(p).all() for p in model.parameters())
    for part, optimiser in optimisers.items():
        counts = {int(s["step"]) for s in plain(optimiser).state.values()}
        assert steps + 1 in counts, (part, counts)
    print(f"{task}: {len(moved)} of {len(weights)} parameters moved, {losses}")


task, package_path, steps, notes = sys.argv[1], os.path.abspath(sys.argv[2]), int(sys.argv[3]), open(sys.argv[4]).read()
package = torch.load(package_path, map_location="cpu")
with tempfile.TemporaryDirectory() as scratch:
    os.chdir(scratch)
    torch.manual_seed(1)
    check(*globals()[task.replace("-", "_")]())
    os.chdir("/")
