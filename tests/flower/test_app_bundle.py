"""The bundle of a run: small, and it carries the whole configuration."""

import io
import zipfile

from flwr.common.config import get_fused_config_from_fab
from flwr.supercore.run import Run

from fedsim import config as configs
from fedsim.config import from_run_config
from fedsim.flower.app_bundle import app_bundle


def test_the_configuration_arrives_as_it_was() -> None:
    config = configs.read(
        None,
        [
            "algorithm=spfl",
            "spfl.gamma=3",
            "partition=dirichlet",
            "partition.alpha=0.1",
            "resume=true",
            'out=/srv/it\'s a "run"',
            "fedavg-ft.epochs=2",
        ],
    )
    assert from_run_config(get_fused_config_from_fab(app_bundle(config), Run.create_empty(1))) == config


def test_it_holds_no_code_but_the_two_apps() -> None:
    with zipfile.ZipFile(io.BytesIO(app_bundle(configs.RunConfig()))) as archive:
        code = {name for name in archive.namelist() if name.endswith(".py")}
    assert code == {"fedsim_run/__init__.py", "fedsim_run/server.py", "fedsim_run/client.py"}
