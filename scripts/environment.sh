# Sourced by the scripts beside it, never run. It finds a Python, and makes or reuses the virtual environment:
#
#   use_environment demo|test|all     sets $python; `test` includes `demo`, and `all` includes `test`
#   use_environment peers             another folder, with what the benchmarks compare with, and without feedline
#   use_environment docs              another folder, with what builds the site, and without feedline
#
# PYTHON=... chooses the interpreter, and then the folder is .venv-X.Y instead of .venv, so that versions stand side by
# side. A stamp in the folder tells what is installed: the second run installs nothing.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)

die() {
    printf '%s: %s\n' "scripts/$(basename "$0")" "$*" >&2
    exit 1
}

say() {
    printf -- '-- %s\n' "$*" >&2
}

# A name on the PATH may be a launcher of a version that is not there, so each candidate is run.
runs_as_new_enough() {
    "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_interpreter() {
    if [ -n "${PYTHON:-}" ]; then
        runs_as_new_enough "$PYTHON" || die "PYTHON=$PYTHON is no Python 3.11 or newer with the modules venv and ensurepip"
        interpreter=$PYTHON
        return
    fi
    for interpreter in python3 python3.14 python3.13 python3.12 python3.11; do
        runs_as_new_enough "$interpreter" && return
    done
    die "no Python 3.11 or newer found (with the modules venv and ensurepip; on Debian and Ubuntu: apt install python3-venv); set PYTHON=/path/to/python"
}

# What is to be installed, as arguments of pip.
requirements_of() {
    case $1 in
        demo) requirements=(--editable "$root[demo]") ;;
        test) requirements=(--editable "$root[all,dev]") ;;
        all) requirements=(--editable "$root[all,dev]" --requirement "$root/tests/requirements-all.txt") ;;
        peers) requirements=(--requirement "$root/benchmarks/peers.txt") ;;
        docs) requirements=(--requirement "$root/docs/requirements.txt") ;;
        *) die "no such environment: $1" ;;
    esac
}

which_python() {
    "$1" -c 'import sys; print(sys.version, sys.base_prefix)' 2>/dev/null
}

fingerprint_of() {
    local files=("$root"/{pyproject.toml,tests/requirements-all.txt,benchmarks/peers.txt})
    [ "$1" = docs ] && files=("$root/docs/requirements.txt")
    which_python "$interpreter" | cat - "${files[@]}" | cksum
    printf '%s\n' "$root"
}

is_installed() {
    local larger
    for larger in "$@"; do
        [ "$(cat "$venv/.installed-$larger" 2>/dev/null)" = "$fingerprint" ] && return
    done
    return 1
}

# Two scripts that start together must not install into one folder at the same time.
take_turns() {
    mkdir -p "$venv-lock"
    exec 9>"$venv-lock/lock"
    if command -v flock >/dev/null 2>&1; then
        flock -w 900 9 || die "another script has been setting up $venv for 15 minutes"
    fi
}

install() {
    local level=$1 log
    log=$(mktemp "${TMPDIR:-/tmp}/feedline-install.XXXXXX")
    # A run that was cut off may have left a folder without pip.
    if [ "$(which_python "$python")" != "$(which_python "$interpreter")" ] ||
        ! "$python" -m pip --version >/dev/null 2>&1; then
        say "making $venv with $("$interpreter" --version)"
        "$interpreter" -m venv --clear "$venv" >"$log" 2>&1 || { cat "$log" >&2; die "could not make $venv"; }
    fi
    say "installing what '$level' needs (once)"
    rm -f "$venv"/.installed-*
    if ! "$python" -m pip install --quiet --no-input --disable-pip-version-check "${requirements[@]}" >"$log" 2>&1; then
        tail -n 15 "$log" >&2
        die "pip could not install what '$level' needs (is the package index reachable?); the whole output is in $log"
    fi
    rm -f "$log"
    printf '%s\n' "$fingerprint" >"$venv/.installed-$level"
}

use_environment() {
    local level=$1 levels
    find_interpreter
    venv=$root/.venv
    if [ -n "${PYTHON:-}" ]; then
        venv=$root/.venv-$("$interpreter" -c 'import sys; print("%d.%d%s" % (*sys.version_info[:2], sys.abiflags))')
    fi
    case $level in peers | docs) venv=$root/.venv-$level ;; esac
    python=$venv/bin/python
    case $level in
        demo) levels="demo test all" ;;
        test) levels="test all" ;;
        *) levels=$level ;;
    esac
    requirements_of "$level"
    fingerprint=$(fingerprint_of "$level")
    # shellcheck disable=SC2086  # the levels are words
    if ! is_installed $levels || ! "$python" -c '' >/dev/null 2>&1; then
        take_turns
        is_installed $levels && "$python" -c '' >/dev/null 2>&1 || install "$level"
        exec 9>&-
    fi
}
