"""A personal model that the server made is evaluated without the client's state, which may be changing meanwhile."""

from collections.abc import Callable

import numpy as np
import pytest
from flwr.app import RecordDict

from fedsim.client import app as client_app
from fedsim.client import jobs
from fedsim.config import RunConfig
from fedsim.engine.base import context_of
from fedsim.engine.inline import InlineGrid
from fedsim.payload import ClientState, Downlink, Job, RunIdentity
from fedsim.server.roll_call import roll_call
from fedsim.transport import wire
from fedsim.transport.answer_check import AnswerCheck
from fedsim.weights import Weights


@pytest.mark.parametrize(("made_by_server", "seen"), [(True, []), (False, ["secret"])])
def test_which_personal_model_may_depend_on_the_state(
    made_by_server: bool, seen: list[str], small: Callable[..., RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small()
    fleet = roll_call(InlineGrid(config), config)
    behaviour, given = jobs.behaviour_of(config), list[ClientState]()
    personalize = behaviour.personalize

    def noting(task: object, down: Downlink, state: ClientState, rng: object) -> object:
        given.append(state)
        return personalize(task, down, state, rng)  # type: ignore[arg-type]

    monkeypatch.setattr(behaviour, "personalize", noting)
    monkeypatch.setattr(client_app, "behaviour_of", lambda config: behaviour)
    zeros = Weights(np.zeros_like(fleet.initial.parameters))
    weights = {"model": fleet.initial} | ({"personal": zeros} if made_by_server else {})
    job = Job(2, 1, Downlink(weights), train=False, test_personal=True)
    message = wire.pack_job(job, 4, RunIdentity("ab"), fleet.classes, 60, wire.Encoder())
    state = RecordDict()
    wire.write_state(state, ClientState({"secret": fleet.initial}))
    reply = client_app.app(message, context_of(config, 2, state))
    answer = wire.unpack_answer(reply, job, AnswerCheck())
    assert answer.report.personal is not None
    assert [list(state.weights) for state in given] == [seen]
