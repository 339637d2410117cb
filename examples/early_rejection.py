"""Reject at a step of a diffusers pipeline: images that look bad half-way are not finished.

Run:  python examples/early_rejection.py

The pipeline is tiny and not trained, so that the example runs without a download; its reward is the redness of an
image. A first run of 768 images gives the final log-ratios, and a regression of them on the latents of step 5 of 10
the early ones. `obrs.rules.Stages` fits both constants. Then a callback of the pipeline drops the rows that are
rejected at that step, and the end decides on the others.
"""

import numpy as np
import torch
from diffusers import DDIMScheduler, UNet2DConditionModel, VQModel
from diffusers.pipelines.kandinsky2_2.pipeline_kandinsky2_2 import KandinskyV22Pipeline

import obrs

STEPS, AT, BUDGETS = 10, 5, [1.3, 1.55]  # together 1 in 2
SHAPE = (4, 8, 8)  # of the latents of an image


def tiny_pipeline():
    """Return a pipeline of Kandinsky 2.2 with small random networks; yours: DiffusionPipeline.from_pretrained(...)."""
    torch.manual_seed(0)
    unet = UNet2DConditionModel(
        in_channels=4,
        out_channels=8,  # mean and variance
        addition_embed_type="image",
        down_block_types=("ResnetDownsampleBlock2D", "SimpleCrossAttnDownBlock2D"),
        up_block_types=("SimpleCrossAttnUpBlock2D", "ResnetUpsampleBlock2D"),
        mid_block_type="UNetMidBlock2DSimpleCrossAttn",
        block_out_channels=(8, 16),
        norm_num_groups=4,
        layers_per_block=1,
        encoder_hid_dim=8,
        encoder_hid_dim_type="image_proj",
        cross_attention_dim=8,
        attention_head_dim=4,
        resnet_time_scale_shift="scale_shift",
    )
    torch.nn.init.normal_(unet.conv_out.weight, std=0.01)  # so that an early look tells something, as in a trained one
    movq = VQModel(latent_channels=4, block_out_channels=(32,), norm_type="spatial")
    pipe = KandinskyV22Pipeline(unet.eval(), DDIMScheduler(), movq.eval())
    pipe.set_progress_bar_config(disable=True)
    return pipe


def keep_rows(keep, names):
    """Return a callback that drops rows of the batch where `keep(step, latents)` is False, if it is not None.

    Args:
        keep: Decides at the end of each step; None for a step that rejects nothing.
        names: What else of the pipeline has a row per image, of `pipe._callback_tensor_inputs`: embeddings. With
            guidance they have two rows per image.
    """

    def callback(pipe, step, timestep, tensors):
        stays = keep(step, tensors["latents"])
        if stays is None:
            return {}
        return {name: tensors[name][stays.repeat(len(tensors[name]) // len(stays))] for name in ("latents", *names)}

    return callback


def make(pipe, ids, keep):
    """Run the pipeline on the latents of these ids; return the images that `keep` lets through."""
    z = obrs.normals(ids, int(np.prod(SHAPE)), seed=0, like=torch.empty(0)).reshape(-1, *SHAPE)
    embeds = torch.zeros(len(ids), 8)
    return pipe(
        embeds,
        embeds + 1,
        height=SHAPE[1],
        width=SHAPE[2],
        num_inference_steps=STEPS,
        latents=z,
        output_type="pt",
        callback_on_step_end=keep_rows(keep, ["image_embeds"]),
        callback_on_step_end_tensor_inputs=["latents", "image_embeds"],
    ).images


def redness(images):
    return (images[:, 0] - images[:, 1:].mean(1)).mean((1, 2)).double()


def preview(pipe, latents):
    """Return the redness of the latents as they are, decoded, and 1: the early ratio is a linear function of them."""
    scores = redness(pipe.movq.decode(latents, force_not_quantize=True).sample)
    return torch.stack([scores, torch.ones_like(scores)], 1)


def main():
    pipe, seen = tiny_pipeline(), []

    def look(step, latents):
        if step == AT - 1:
            seen.append(preview(pipe, latents))

    # The pilot: whole images, their rewards, and what they looked like on the way.
    rewards = torch.cat([redness(make(pipe, ids, look)) for ids in np.split(np.arange(768), 6)])
    mean, sd = rewards.mean(), rewards.std()
    final = (rewards - mean) / sd  # a reward with a temperature is a log-ratio
    slope = torch.linalg.lstsq(torch.cat(seen), final).solution
    early = torch.cat(seen) @ slope
    stages = obrs.rules.Stages.fit([early, final], BUDGETS)
    print(f"the preview of step {AT} of {STEPS} correlates {np.corrcoef(early, final)[0, 1]:.2f} with the end")

    # Fresh images: those that the preview rejects are not finished.
    begun, finished, kept = 0, 0, []
    for ids in np.split(np.arange(10_000, 11_024), 8):
        went_on = {}

        def reject(step, latents, ids=ids, went_on=went_on):
            if step != AT - 1:
                return None
            scores = preview(pipe, latents) @ slope
            stays = obrs.accept(stages([scores]), ids)
            went_on.update(ids=ids[stays.numpy()], early=scores[stays])
            return stays

        scores = (redness(make(pipe, ids, reject)) - mean) / sd
        kept.append(scores[obrs.accept(stages([went_on["early"], scores]), went_on["ids"])])
        begun, finished = begun + len(ids), finished + len(scores)
    reward, share = torch.cat(kept).numpy(), AT / STEPS  # the share of the cost that a preview takes
    cost = (share * begun + (1 - share) * finished) / len(reward)
    a = np.exp(obrs.Budgeted.fit(final.numpy(), cost)(final.numpy()))  # what this cost would buy at the end alone
    print(f"kept {len(reward)} of {begun}, {finished} were finished: {cost:.2f} runs of the pipeline for each")
    print(f"mean reward {reward.mean():.2f}; at the end alone {np.average(final, weights=a):.2f} for as many runs")


if __name__ == "__main__":
    main()
