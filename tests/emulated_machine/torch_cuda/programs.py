"""Small programs as users write them, each a function of the device; run on a CPU and on an emulated GPU."""

import copy
import io

import torch


def arithmetic(device):
    x = torch.arange(24.0, device=device).reshape(2, 3, 4)
    return [
        x.transpose(0, 1) @ x.permute(1, 2, 0),
        x.sum(-1),
        x.amax(0),
        x[1, :, 1::2],
        x[x > 5],
        (x * 2).exp().clamp(max=9),
    ]


def in_place_and_out(device):
    x = torch.zeros(4, 4, device=device)
    x[1:3].fill_(2).mul_(3)
    x[:, 0] += torch.arange(4, device=device)
    out = torch.empty(0, device=device)
    torch.add(x, 1, out=out)
    x[[0, 1], [2, 3]] = torch.tensor(7.0)
    return [x, out, torch.cat([x, out]).sort(dim=0).values, *torch.topk(x.view(-1), 3)]


def factories(device):
    x = torch.empty_strided((3, 2), (1, 3), device=device).fill_(1)
    return [
        torch.eye(3, device=device), torch.full((2,), 3, device=device), torch.linspace(0, 1, 5, device=device),
        torch.zeros_like(x), x.new_tensor([1, 2]), x.new_ones(2), torch.tensor([[1, 2]], device=device),
        torch.from_numpy(torch.arange(3).numpy()).to(device), torch.tril_indices(3, 3, device=device),
    ]  # fmt: skip


def random_numbers(device):
    torch.manual_seed(3)
    generator = torch.Generator(device=device).manual_seed(5)
    return [
        torch.rand(5, device=device), torch.randn(3, device=device, dtype=torch.bfloat16),
        torch.randint(0, 9, (4,), device=device), torch.randperm(7, device=device),
        torch.rand(4, device=device, generator=generator), torch.nn.functional.dropout(torch.ones(9, device=device)),
        torch.bernoulli(torch.full((6,), 0.5, device=device)),
    ]  # fmt: skip


def training(device):
    torch.manual_seed(0)
    layers = [
        torch.nn.Conv2d(1, 4, 3),
        torch.nn.BatchNorm2d(4),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(144, 5),
    ]
    model = torch.nn.Sequential(*layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    x, target = torch.arange(256.0).reshape(4, 1, 8, 8).to(device) / 256, torch.tensor([0, 1, 2, 3]).to(device)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), target)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
    return [*losses, *(p.detach() for p in model.parameters())]


def transformer(device):
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True).to(device).train()
    x = torch.sin(torch.arange(96.0)).reshape(2, 3, 16).to(device).requires_grad_()
    layer(x).pow(2).sum().backward()
    return [x.grad]


def autograd(device):
    x = torch.arange(1.0, 5.0, device=device, requires_grad=True)
    (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    with torch.no_grad():
        x += 1
    return [first.detach(), second, x.detach(), torch.func.vmap(torch.sin)(x.detach())]


def saved(device):
    x = torch.arange(6.0, device=device).reshape(2, 3)
    file = io.BytesIO()
    torch.save({"x": x, "view": x[1], "module": torch.nn.Linear(2, 2).to(device).state_dict()}, file)
    file.seek(0)
    loaded = torch.load(file)
    assert loaded["x"].device == x.device
    file.seek(0)
    assert torch.load(file, map_location="cpu")["x"].device.type == "cpu"
    loaded["x"][1, 0] = 9
    return [loaded["x"], loaded["view"], copy.deepcopy(x)]


def defaults(device):
    with torch.device(device):
        x = torch.ones(3)
    torch.set_default_device(device)
    try:
        y = torch.arange(3)
    finally:
        torch.set_default_device(None)
    return [x, y, x + y]


def types(device):
    x = torch.arange(-4, 4, device=device)
    return [
        x.to(torch.bfloat16) / 3, x.half().mul(0.1), x.to(torch.uint8), x.bool(), x.to(torch.complex64) * 1j,
        torch.view_as_real(x.to(torch.complex64).conj().resolve_conj()), x.to(torch.float8_e4m3fn).float(),
    ]  # fmt: skip


def shapes(device):
    x = torch.arange(12, device=device)
    return [
        x.nonzero(), x.unique(), *x.chunk(5), *x.reshape(3, 4).unbind(1), x.as_strided((2, 2), (5, 1), 1),
        x.unfold(0, 4, 3),
        torch.stack([x, x]).flip(0), x.resize_(2, 3), torch.where(x > 2, x, 0), x.cumsum(0), torch.einsum("ij->j", x),
    ]  # fmt: skip


PROGRAMS = [
    arithmetic, in_place_and_out, factories, random_numbers, training, transformer, autograd, saved, defaults, types,
    shapes,
]  # fmt: skip
