"""What system tests start once and share."""

from pathlib import Path

import pytest

from fedsim.engine.ray_session import leave


@pytest.fixture(scope="session")
def own_folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder with packages `clients`, `strategies`, `partitions` and `deploy` that do not belong to fedsim."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("clients", "strategies", "partitions", "deploy"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("")
        (folder / name / "mine.py").write_text(f'OWNER = "the user of {name}"\n')
    return folder


@pytest.fixture
def without_ray() -> None:
    """Ends the local Ray of this process, for tests in which the engine starts or joins one."""
    leave()
