#!/bin/sh
# Programs of other projects that tests run, from Debian's packages; nothing is done where all are there.
set -eu

missing=""
for pair in prometheus:prometheus promtool:prometheus prometheus-alertmanager:prometheus-alertmanager amtool:prometheus-alertmanager \
    chromium:chromium tmux:tmux systemd-analyze:systemd; do
    command -v "${pair%%:*}" >/dev/null || missing="$missing ${pair##*:}"
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
    echo "These programs are missing, install them first:$missing" >&2
    exit 1
fi
echo "Installing:$missing"
# A package that brings a service must not start it here.
policy=/usr/sbin/policy-rc.d
[ -e "$policy" ] || { printf '#!/bin/sh\nexit 101\n' >"$policy"; chmod +x "$policy"; trap 'rm -f "$policy"' EXIT; }
apt-get update -qq
# shellcheck disable=SC2086 # one word a package
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
