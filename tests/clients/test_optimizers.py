import pytest
import torch
from torch import nn

from fedsim.clients.optimizers import SGD


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_it_is_torchs_sgd_bit_for_bit(momentum: float, decay: float) -> None:
    torch.manual_seed(0)
    ours = nn.Sequential(nn.Linear(7, 5), nn.ReLU(), nn.Linear(5, 3))
    theirs = nn.Sequential(nn.Linear(7, 5), nn.ReLU(), nn.Linear(5, 3))
    theirs.load_state_dict(ours.state_dict())
    mine = SGD(ours.parameters(), 0.1, momentum, decay)
    reference = torch.optim.SGD(theirs.parameters(), 0.1, momentum, weight_decay=decay)
    for number in range(6):
        x, y = torch.randn(8, 7), torch.randint(3, (8,))
        if number == 3:
            mine.lr = reference.param_groups[0]["lr"] = 0.02
        for model, optimizer in ((ours, mine), (theirs, reference)):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))


@pytest.mark.parametrize(("momentum", "decay"), [(0.0, 0.0), (0.9, 0.1)])
def test_a_parameter_without_gradient_stays(momentum: float, decay: float) -> None:
    used, unused = (torch.ones(2, requires_grad=True) for _ in range(2))
    optimizer = SGD([unused, used], 0.5, momentum, decay)
    optimizer.step()
    assert used.tolist() == [1, 1]
    (3 * used).sum().backward()
    optimizer.step()
    assert used.tolist() == pytest.approx([1 - 0.5 * (3 + decay)] * 2)
    assert unused.tolist() == [1, 1]
