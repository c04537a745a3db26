import torch

from onecurve.train.optimiser import BatchedAdamW


def test_each_model_takes_the_steps_of_torchs_adamw():
    torch.manual_seed(0)
    rates, decays = [0.1, 0.01, 0.003], [0.0, 0.5, 2.0]
    start = torch.randn(3, 4, 5, dtype=torch.float32)
    batched = {"w": start.clone()}
    optimiser = BatchedAdamW(batched, {"w": rates}, {"w": decays}, (0.9, 0.95), 1e-8)
    alone = [start[i].clone().requires_grad_(True) for i in range(3)]
    theirs = [
        torch.optim.AdamW([w], lr=rate, weight_decay=decay, betas=(0.9, 0.95), eps=1e-8)
        for w, rate, decay in zip(alone, rates, decays, strict=True)
    ]
    for count in range(1, 21):
        multiplier = 1.0 - count / 25.0
        gradient = torch.randn(3, 4, 5)
        optimiser.step({"w": gradient}, count, multiplier)
        for i, (weight, optim) in enumerate(zip(alone, theirs, strict=True)):
            weight.grad = gradient[i].clone()
            optim.param_groups[0]["lr"] = multiplier * rates[i]
            optim.step()
    for i in range(3):
        torch.testing.assert_close(batched["w"][i], alone[i].detach(), rtol=2e-5, atol=1e-6)
