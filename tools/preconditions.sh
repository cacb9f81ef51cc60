#!/bin/sh
# Says in one message what this machine lacks for `make test`, before many tests fail for that reason.
lacking=
lacks() {
    echo "error: $1" >&2
    lacking=yes
}

[ "$(uname -s)" = Linux ] && command -v dpkg-query >/dev/null || lacks 'the tests need Debian or Ubuntu'
command -v cargo >/dev/null || lacks 'the tests need Rust; https://rust-lang.org/tools/install installs it'
# Where there is no Python, `make setup` installs Debian's.
command -v python3.11 >/dev/null || ! command -v python3 >/dev/null || lacks 'the tests need `python3.11`'
if [ "$(id -u)" = 0 ]; then
    # Version 1 of cgroups, or version 2 with its controllers.
    root=/sys/fs/cgroup/cpuacct
    [ -e "$root" ] || root=/sys/fs/cgroup
    group=$root/precondition-$$
    { mkdir "$group" && rmdir "$group"; } 2>/dev/null || lacks "the tests need a writable \`$root\`; a container needs --privileged --cgroupns=host"
    paranoid=$(cat /proc/sys/kernel/perf_event_paranoid 2>/dev/null || echo 4)
    [ "$paranoid" -le 2 ] || lacks 'plain users may not count CPU time; `sysctl kernel.perf_event_paranoid=2` permits it'
else
    lacks 'the tests need root, for cgroups, network namespaces and a second user; `sudo -E env "PATH=$PATH" make test` runs them'
fi
[ -z "$lacking" ]
