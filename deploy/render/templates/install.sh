#!/bin/sh
# Installs this machine's part of the federation and starts it. Run it as root; running it again updates.
set -eu
umask 022
cd "$$(dirname "$$0")"
python=$python
home=$home

id -u $user > /dev/null 2>&1 || useradd --system --user-group --home-dir /nonexistent --shell /usr/sbin/nologin $user
if ! test -x "$$python"; then
    python3 -m venv $environment
    "$$python" -m pip install --disable-pip-version-check --no-deps --only-binary :all: --require-hashes \
        --requirement requirements.txt
    "$$python" -m pip check
fi
found=$$("$$python" -c 'from importlib.metadata import version; print(version("$distribution"))')
if test "$$found" != $version; then
    echo "$$python has $distribution $$found, the federation $version: install ./$wheel-*.whl there" >&2
    exit 1
fi

mkdir -p "$$(dirname "$$home")"
install -d -o $user -g $user -m 700 "$$home"
install -o $user -g $user -m 600 home/* "$$home"
install -m 644 $unit /etc/systemd/system/
systemctl daemon-reload
systemctl enable $unit
systemctl restart $unit
