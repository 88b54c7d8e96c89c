#!/usr/bin/env bash
# Checks that the repository works on a machine that has nothing yet. Makes a minimal Debian from the sources of this machine's
# apt, and copies the clone and the Rust toolchain into it. Runs a command there, in a home folder that only its owner may enter:
#   ci/fresh.sh [--user] [COMMAND...]    runs ci/test-full.sh --all without a command; as root, or as an ordinary user
# With --user the new machine has a C compiler from the start. Root's run installs it itself. All files are in build/fresh, and
# the script removes them at the end. Of this machine only the toolchain is mounted there, and that is read-only.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_cargo

who=root home=/root
if [ "${1:-}" = --user ]; then who=dev home=/home/dev && shift; fi
[ $# -gt 0 ] || set -- ci/test-full.sh --all
FRESH=$ROOT/build/fresh
TREE=$FRESH/root
rustup=${RUSTUP_HOME:-$HOME/.rustup} cargo=${CARGO_HOME:-$HOME/.cargo}

if [ "$(id -u)" != 0 ]; then
    skip "a fresh machine: only root may make one" "run ci/fresh.sh as root"
    exit 0
fi
have mmdebstrap || packages mmdebstrap || exit 0
if ! why=$(unshare --mount --pid --fork true 2>&1); then
    skip_here "a fresh machine: $why" "where root may make namespaces and mounts (Docker: --cap-add SYS_ADMIN)"
    exit 0
fi
if [ ! -d "$rustup/toolchains" ]; then
    skip_here "a fresh machine: Rust does not come from rustup here" "where rustup has installed it"
    exit 0
fi

remove() { rm -rf --one-file-system "$FRESH"; }
trap remove EXIT
remove
mkdir -p "$FRESH"
include=ca-certificates
[ $who = root ] || include+=,gcc,libc6-dev
settings=() sources=()
for file in /etc/apt/apt.conf.d/*; do
    ! grep -qs '^Acquire::' "$file" || settings+=(--aptopt="$file") # these files have proxies and similar settings
done
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources}; do
    [ ! -s "$file" ] || sources+=("$file")
done
if ! mmdebstrap --quiet --variant=minbase --include=$include ${settings[@]+"${settings[@]}"} "" "$TREE" \
    ${sources[@]+"${sources[@]}"} 2>"$FRESH/log"; then
    skip_here "a fresh machine: $(grep -m1 '^E: ' "$FRESH/log" || tail -1 "$FRESH/log")" "where apt reaches a Debian mirror"
    exit 0
fi

# The new machine is in the state after `git clone` and the installation of rustup. Crates that cargo
# has fetched before are copied.
[ $who = root ] || chroot "$TREE" useradd --create-home --shell /bin/bash $who
mkdir -p "$TREE$home/gpuslice" "$TREE$home/.cargo" "$TREE/opt/rustup"
git ls-files -z --cached --others --exclude-standard | tar -c --null --files-from=- --ignore-failed-read |
    tar -x -C "$TREE$home/gpuslice"
for part in bin registry config.toml; do
    [ ! -e "$cargo/$part" ] || cp -a "$cargo/$part" "$TREE$home/.cargo/"
done
chroot "$TREE" chown -R $who:$who "$home"
chmod 700 "$TREE$home"
# The registries may have a certificate authority of their own. So the new machine trusts the same authorities as this one.
cp /etc/ssl/certs/ca-certificates.crt "$TREE/etc/ssl/certs/"
cp -L /etc/resolv.conf /etc/hosts "$TREE/etc/"
[ ! -e /etc/pip.conf ] || cp /etc/pip.conf "$TREE/etc/"

kept=()
while IFS= read -r variable; do kept+=("$variable"); done < <(env | grep -iE '^(https?_proxy|no_proxy|PIP_((EXTRA_)?INDEX_URL|CERT|DEFAULT_TIMEOUT)|CARGO_(HTTP|NET|REGISTR)[A-Z_]*)=' || true)
echo "$* as $who in a fresh $(. "$TREE/etc/os-release" && echo "$PRETTY_NAME")"
# shellcheck disable=SC2016 # the inner shell's variables
unshare --mount --pid --fork --kill-child --propagation private bash -c '
    set -e
    tree=$1 rustup=$2 who=$3 home=$4
    shift 4
    mount --bind "$tree" "$tree" # programs inside can change the root only if it is a mount
    mount --bind -o ro "$rustup" "$tree/opt/rustup"
    mount -t proc proc "$tree/proc"
    mount -t sysfs -o ro sysfs "$tree/sys" || true
    mount -t tmpfs -o mode=755 tmpfs "$tree/dev"
    for name in null zero full random urandom tty; do
        touch "$tree/dev/$name" && mount --bind "/dev/$name" "$tree/dev/$name"
    done
    ln -s /proc/self/fd "$tree/dev/fd"
    for name in stdin:0 stdout:1 stderr:2; do ln -s "fd/${name#*:}" "$tree/dev/${name%:*}"; done
    mkdir "$tree/dev/shm" "$tree/dev/pts"
    mount -t tmpfs -o mode=1777 tmpfs "$tree/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=666 devpts "$tree/dev/pts"
    ln -s pts/ptmx "$tree/dev/ptmx"
    # This is not chroot, because a program in a chroot cannot make a user namespace.
    cd "$tree" && mkdir -p old && pivot_root . old && umount -l old && rmdir old
    exec setpriv --reuid="$who" --regid="$who" --init-groups env -i "${@:2:$1}" HOME="$home" USER="$who" LANG=C.UTF-8 RUSTUP_HOME=/opt/rustup \
        PATH="$home/.cargo/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" \
        bash -c "cd ~/gpuslice && exec \"\$@\"" bash "${@:2+$1}"
' bash "$TREE" "$rustup" $who "$home" ${#kept[@]} "${kept[@]}" "$@"
