"""Which models are offered on which of today's GPUs, in which batches, counts and power limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

LIMITS_W = {
    "H100": [300, 400, 500, 600, 700],
    "H200": [300, 400, 500, 600, 700],
    "B200": [430, 570, 715, 860, 1000],
    "MI300X": [325, 430, 535, 645, 750],
    "L40S": [150, 200, 250, 300, 350],
}
"""Power limits to offer: the parts of the board limit at which the H100 was measured."""
LIMITED_AS = {"vit-g14": "vit-l16", "stable-diffusion": "vit-l16", "resnet50": "vit-l16"}
"""Which measured workload a lower limit slows a model down like; others as `llama3-8b`."""


@dataclass(frozen=True)
class Offer:
    """Batches and GPU counts to offer: those that fit into memory, or that somebody ran."""

    batch_sizes: list[int]
    default_batch: int
    max_local_batch: int
    gpu_counts: list[int]


@dataclass(frozen=True)
class Model:
    """A model: on which GPU types it is offered and how; ``sample`` says what a sample is."""

    sample: str
    offers: Mapping[str, Offer]
    sync_of: tuple[str, float] | None = None
    """Model whose synchronisation is taken, and how many times as long."""
    notes: Mapping[str, str] = field(default_factory=dict)


def doubling(first: int, last: int) -> list[int]:
    """Return ``first, 2 * first, ...`` up to `last`."""
    return [first << i for i in range((last // first).bit_length())]


def everywhere(*types: str, offer: Offer) -> dict[str, Offer]:
    """Return the same offer on several GPU types."""
    return dict.fromkeys(types, offer)


SMALL = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]
ALL = ("H100", "H200", "B200", "MI300X", "L40S")
SEQUENCE_8B = Offer(doubling(128, 2048), 128, 16, doubling(8, 128))
SEQUENCE_8B_LARGE = Offer(doubling(128, 2048), 128, 64, doubling(2, 128))
MODELS = {
    "resnet50": Model(
        "an image of 224 x 224", everywhere("H100", "H200", "L40S", offer=Offer([], 0, 800, SMALL))
    ),
    "vit-g14": Model(
        "an image of 224 x 224",
        everywhere(*ALL, offer=Offer(doubling(512, 8192), 4096, 512, [*SMALL, 128])),
        notes={"H100": "The published global batch of the run is taken to be that of the recipe, 4,096."},
    ),
    "stable-diffusion": Model(
        "an image of 512 x 512 as latents (v2, UNet)",
        {
            **everywhere(*ALL[:4], offer=Offer(doubling(64, 2048), 256, 64, [*SMALL, 128, 256, 512])),
            "L40S": Offer(doubling(64, 2048), 256, 16, [*SMALL, 128]),
        },
    ),
    "llama-1b": Model(
        "a sequence of 4,096 tokens",
        everywhere(*ALL, offer=Offer(doubling(64, 2048), 512, 64, SMALL)),
        sync_of=("llama3-8b", 1.5 / 8.0),
        notes={
            "H100": "Published per GPU (OLMo 2 1B, FP8), without count or batch, here 8 GPUs with 64 "
            "sequences each; synchronisation assumed to be that of llama3-8b times 1.5/8, the parameters."
        },
    ),
    "llama3-8b": Model(
        "a sequence of 8,192 tokens",
        {"H100": SEQUENCE_8B, "H200": SEQUENCE_8B, "B200": SEQUENCE_8B_LARGE, "MI300X": SEQUENCE_8B_LARGE},
    ),
    "llama3-70b": Model(
        "a sequence of 8,192 tokens",
        everywhere(*ALL[:4], offer=Offer(doubling(128, 4096), 128, 2, doubling(64, 1024))),
        notes={
            "H100": "Tensor and pipeline parallel (TP 4, PP 8): offered from 64 GPUs, the least published."
        },
    ),
    "llama2-70b-lora": Model(
        "a packed sequence of 8,192 tokens",
        {
            **everywhere("H100", "H200", offer=Offer(doubling(8, 128), 8, 2, doubling(4, 512))),
            **everywhere("B200", "MI300X", offer=Offer(doubling(8, 128), 8, 2, doubling(8, 512))),
            "L40S": Offer([64, 128], 64, 2, [64, 128]),
        },
        notes={"L40S": "Model-parallel over many cards: offered from 64 GPUs, the least published."},
    ),
}

SERVED = {
    "llama3-8b-serving": ("llm_inference.csv", "Llama 3.1 8B Instruct", "a generated token (chat, vLLM)"),
    "flux1-serving": ("diffusion_inference.csv", "FLUX.1 Dev", "an image of 1,024 x 1,024 in 50 steps"),
}
"""Models that answer requests: file and name in ML.ENERGY, and what a sample is. The batch is of requests
at a time, and several GPUs serve replicas."""
