#!/usr/bin/env bash
# The image as deploy/Containerfile makes it, on a machine that reaches no image registry: its base is made of Debian packages.
#   recipe.sh WORK OUT.tar      a docker archive of localhost/dpdist:dev, for DPDIST_KUBE_IMAGE, podman load, ctr images import
# Needs root, buildah and debootstrap. WORK keeps the base (0.2 GB) and the layers (3 GB); OUT.tar has 1 GB.
# env: DEBIAN_URI; pip gets the packages as it is configured in /etc/pip.conf
set -euo pipefail
[ $# = 2 ] || { sed -n '2,5s/^# \?//p' "$0"; exit 2; }
SOURCE=$(realpath "$(dirname "$0")/../../.."); mkdir -p "$1"; WORK=$(realpath "$1"); OUT=$(realpath -m "$2")
BASE=localhost/python:debian
BUILDAH=(buildah --root "$WORK/store" --runroot "$WORK/runroot" --storage-driver vfs)

if ! "${BUILDAH[@]}" inspect --type image $BASE > /dev/null 2>&1; then
  rm -rf "$WORK/base"; mkdir "$WORK/base"
  debootstrap --variant=minbase --include=ca-certificates,python3-venv bookworm "$WORK/base/root" "${DEBIAN_URI:-http://deb.debian.org/debian}"
  # as in the official image: python, and a pip that may be uninstalled, in /usr/local; no compiled standard library
  chroot "$WORK/base/root" python3 -m venv /usr/local
  rm -rf "$WORK"/base/root/var/{cache/apt,lib/apt/lists}/* "$WORK"/base/root/usr/share/{doc,locale,man}
  find "$WORK/base/root/usr/lib/python3.11" -name __pycache__ -prune -exec rm -rf {} +
  tar -C "$WORK/base/root" -cf "$WORK/base/root.tar" .
  rm -rf "$WORK/base/root"
  printf 'FROM scratch\nADD root.tar /\nENV PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin\n' > "$WORK/base/Containerfile"
  "${BUILDAH[@]}" bud --isolation chroot -t $BASE "$WORK/base"
  rm "$WORK/base/root.tar"
fi
mounts=(); for f in /etc/pip.conf /etc/ssl/certs/ca-certificates.crt; do [ -f $f ] && mounts+=(-v "$f:$f:ro"); done
"${BUILDAH[@]}" bud --isolation chroot --pull-never "${mounts[@]}" --build-arg PYTHON=$BASE -f "$SOURCE/deploy/Containerfile" -t localhost/dpdist:dev "$SOURCE"
rm -f "$OUT"
"${BUILDAH[@]}" push localhost/dpdist:dev "docker-archive:$OUT:localhost/dpdist:dev"
