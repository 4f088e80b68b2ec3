"""The bundle of a run is constant: the configuration travels beside it, and every other bundle is refused by name."""

import io
import zipfile
from dataclasses import replace

import pytest
from flwr.cli.build import build_fab_from_files
from flwr.common.config import get_fused_config_from_fab
from flwr.supercore.run import Run

from fedsim import config as configs
from fedsim.config import from_run_config
from fedsim.distribution import installed_version
from fedsim.errors import ConfigError
from fedsim.flower.app_bundle import BundleRefused, app_bundle, app_files, bundle_hash, check_bundle, run_settings


def packed(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return content.getvalue()


def unpacked(bundle: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


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
    run = replace(Run.create_empty(1), override_config=run_settings(config))
    assert from_run_config(get_fused_config_from_fab(app_bundle(), run)) == config
    typed = configs.parse({"algorithm": "spfl", "spfl.gamma": 2, "lr": 0.1, "resume": False})
    assert from_run_config(run_settings(typed)) == typed


def test_a_configuration_that_is_no_json_object_of_scalars_is_refused() -> None:
    with pytest.raises(ConfigError, match="set is not a valid JSON object"):
        from_run_config({"set": '{"lr": '})
    with pytest.raises(ConfigError, match=r"lr in set must be a text, a number or a boolean, not \[1\]"):
        from_run_config({"set": '{"lr": [1]}'})


def test_it_holds_no_code_but_the_two_apps() -> None:
    assert {name for name in unpacked(app_bundle()) if name.endswith(".py")} == {
        "fedsim_run/__init__.py",
        "fedsim_run/server.py",
        "fedsim_run/client.py",
    }


def test_the_same_files_compressed_otherwise_are_the_same_bundle() -> None:
    other = packed(unpacked(app_bundle()), zipfile.ZIP_STORED)
    assert other != app_bundle()
    assert bundle_hash(other) == bundle_hash(app_bundle())
    check_bundle(other)


def test_a_bundle_with_other_code_or_of_another_version_is_refused_by_name() -> None:
    files = app_files()
    changed = {**files, "fedsim_run/client.py": files["fedsim_run/client.py"] + b"import os\n"}
    told = f"'fedsim-run' {installed_version()} .* is not the bundle of the installed fedsim {installed_version()}"
    with pytest.raises(BundleRefused, match=told):
        check_bundle(build_fab_from_files(changed)[0])
    same_length = unpacked(app_bundle())
    same_length["fedsim_run/client.py"] = same_length["fedsim_run/client.py"][::-1]
    with pytest.raises(BundleRefused, match="and no other code is run here"):
        check_bundle(packed(same_length))
    old = {name: content.replace(installed_version().encode(), b"0.0.1") for name, content in files.items()}
    with pytest.raises(BundleRefused, match=r"'fedsim-run' 0\.0\.1 "):
        check_bundle(build_fab_from_files(old)[0])


def test_what_is_no_bundle_at_all_is_refused() -> None:
    extra = packed({**unpacked(app_bundle()), "more.py": b"print()"})
    for content in (b"", b"PK", extra, packed({"pyproject.toml": b"\xff"}), packed({"a": bytes(10_000_000)})):
        with pytest.raises(BundleRefused):
            check_bundle(content)
