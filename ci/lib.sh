# shellcheck shell=bash
# Helpers that the scripts of this folder source. They find the root of the repository, the compilers and Python. They install
# packages of this distribution, and fetch packages of other releases. They print skips.
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT" || exit

# A skip is a line that starts with `SKIP `, and any program may print one. ci/parts.sh counts skips and lists
# them in two parts. The first part has checks that a command makes possible on this machine. The second has
# checks that only another machine can run.
skip() { # the check that is left out, and why; the command that makes the check possible on this machine
    printf 'SKIP %s; to mend it: %s\n' "$1" "$2"
}
skip_here() { # the check that is left out, and why; the place where it can run
    printf 'SKIP %s; elsewhere: %s\n' "$1" "$2"
}

have() { command -v "$1" >/dev/null 2>&1; }

# If a tool is missing that every build needs, these functions print one line and end the script.
need_cargo() {
    local wanted found
    # A shell that was started before the installation of rustup does not have cargo in PATH.
    have cargo || [ ! -x "${CARGO_HOME:-$HOME/.cargo}/bin/cargo" ] || PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH
    if ! have cargo; then
        echo "$0: there is no cargo; install Rust with rustup: https://rustup.rs" >&2
        exit 127
    fi
    wanted=$(sed -n 's/^rust-version = "\([0-9.]*\)".*/\1/p' Cargo.toml)
    found=$(cargo --version | cut -d' ' -f2)
    if [ "$(printf '%s\n' "$wanted" "$found" | sort -V | head -1)" != "$wanted" ]; then
        echo "$0: cargo ${found:-of no version} is older than $wanted; rustup update stable && rustup default stable" >&2
        exit 1
    fi
}
need_compilers() {
    need_cargo
    if ! have cc; then
        echo "$0: there is no C compiler, with which Rust links; apt-get install gcc libc6-dev" >&2
        exit 127
    fi
}

# Newer releases name some libraries NAMEt64. dpkg-query fails if it does not know one of the two names.
installed() { { dpkg-query -W -f '${db:Status-Status}\n' "$1" "$1t64" 2>/dev/null || true; } | grep -qx installed; }

install_packages() { # names
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" >/dev/null 2>&1
}

# Installs those of the named packages that are missing, if it is allowed to, and prints their names.
packages() {
    local missing=() name
    for name in "$@"; do
        installed "$name" || missing+=("$name")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" = 0 ] && have apt-get; then
        echo "installing ${missing[*]}"
        apt-get update >/dev/null 2>&1 || true
        install_packages "${missing[@]}" && return 0
        # apt installs none of the packages if this distribution does not have one of them. So each is tried alone.
        for name in "${missing[@]}"; do install_packages "$name" || true; done
        missing=()
        for name in "$@"; do
            installed "$name" || missing+=("$name")
        done
        [ ${#missing[@]} -gt 0 ] || return 0
        skip_here "what needs the packages ${missing[*]}: apt-get cannot install them" "where apt reaches them"
        return 1
    fi
    skip "what needs the packages ${missing[*]}: they are not installed" "apt-get install ${missing[*]}"
    return 1
}

# Runs apt with sources and a state of its own, in the folder $APT. This fetches packages of other releases as files.
private() { # an apt program; its arguments
    "$1" -q -o Dir::Etc::sourcelist="$APT/sources" -o Dir::Etc::sourceparts=- -o Dir::Etc::preferencesparts=- \
        -o Dir::State="$APT/state" -o Dir::State::status="$APT/status" -o Dir::Cache="$APT/cache" \
        -o APT::Sandbox::User=root -o Acquire::Languages=none \
        -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false \
        -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20 -o Acquire::Retries=1 "${@:2}"
}

# Writes the list of sources. The mirror is the one that this machine uses, and the arguments choose the suites and the component.
# If a suite does not have a package, only `unpack` fails.
make_sources() { # component; suites
    mkdir -p "$APT/state/lists/partial" "$APT/cache/archives/partial"
    : >"$APT/status"
    local uri release keyring suite options=
    for keyring in /usr/share/keyrings/debian-archive-keyring.{gpg,pgp}; do
        [ ! -r "$keyring" ] || options="[signed-by=$keyring] "
    done
    # shellcheck disable=SC2016 # apt's own variables
    apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Identifier: Packages' | sort -u |
        while read -r uri release; do
            for suite in "${@:2}"; do
                case $release,$suite in
                    *-security,*-security) ;;
                    *[-/]*,* | *,*-security) continue ;;
                esac
                echo "deb $options$uri $suite $1"
            done
        done | sort -u >"$APT/sources" || true
    private apt-get update >"$APT/update.log" 2>&1 || true
}

# Fetches packages, and unpacks them into a folder. A package is named as for apt: NAME=VERSION or NAME/SUITE.
unpack() { # folder; packages
    local part=$APT/part package
    rm -rf "$part"
    mkdir -p "$part" "$1"
    for package in "${@:2}"; do
        (cd "$part" && private apt-get download "$package" >>"$APT/download.log" 2>&1) || return 1
    done
    for package in "$part"/*.deb; do dpkg -x "$package" "$1"; done
    rm -rf "$part"
}

suite() { sed -n 's/^VERSION_CODENAME=//p' /etc/os-release; } # prints the release of this machine

# Makes a root file system from packages of a release and all packages that they need. It runs no script of a package.
root_file_system() { # folder; suite; packages
    local tree=$1 package name
    rm -rf "$tree" "$tree.new" "$APT/cache/archives"
    mkdir -p "$tree.new/usr/lib64" "$APT/cache/archives/partial"
    private apt-get install -t "$2" --download-only -y --no-install-recommends "${@:3}" >"$tree.log" 2>&1 || return 1
    for package in "$APT"/cache/archives/*.deb; do dpkg -x "$package" "$tree.new"; done
    # Some releases have these folders only below /usr, others also on top. Images have them below /usr.
    for name in bin sbin lib lib64; do
        [ ! -d "$tree.new/$name" ] || [ -L "$tree.new/$name" ] || {
            mkdir -p "$tree.new/usr/$name"
            cp -a "$tree.new/$name/." "$tree.new/usr/$name/"
            rm -rf "${tree:?}.new/$name"
        }
        ln -sfn "usr/$name" "$tree.new/$name"
    done
    mkdir -p "$tree.new"/{etc,proc,sys,dev,tmp,run}
    mv "$tree.new" "$tree"
}

# Finds a Python that can make virtual environments. Clients need 3.11 or newer. A distribution's own Python may lack `venv`.
find_python() {
    local candidate
    for candidate in python3 python3.13 python3.12 python3.11; do
        "$candidate" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
        echo "$candidate"
        return 0
    done
    return 1
}

# Makes build/venv, the only virtual environment that the scripts use.
make_venv() {
    [ ! -x build/venv/bin/pip ] || return 0
    local python
    find_python >/dev/null || packages python3 python3-venv || return 1
    python=$(find_python) || { skip_here "what needs Python 3.11: this is an older one" "with Python 3.11 or newer"; return 1; }
    "$python" -m venv build/venv || { skip "what needs a virtual environment: venv fails" "apt-get install python3-venv"; return 1; }
}
