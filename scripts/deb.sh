#!/usr/bin/env bash
# Makes a Debian package from a tree with the folders bin, lib and share: scripts/deb.sh TREE VERSION ARCHITECTURE OUT
#
# SOURCE_DATE_EPOCH is the time of every file. The same tree gives the same package, byte by byte.
# Prints the name of the package.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
[ $# = 4 ] || { sed -n '2p' "${BASH_SOURCE[0]}" >&2; exit 2; }
tree=$1 version=$2 architecture=$3 out=$4
: "${SOURCE_DATE_EPOCH:?the time of the files}"
maintainer=${DORMOUSE_MAINTAINER:-The Dormouse authors <maintainers@dormouse.invalid>}
debian=$root/deploy/debian
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022
package=$work/dormouse
usr=$package/usr
mkdir -p "$package/DEBIAN" "$usr"
cp -r "$tree/." "$usr/"

mkdir -p "$usr/lib/systemd/system" "$usr/lib/sysusers.d" "$usr/share/lintian/overrides" "$package/etc/dormouse/nats"
for unit in "$root"/deploy/systemd/*.service; do
  sed 's#/usr/local/#/usr/#' "$unit" >"$usr/lib/systemd/system/$(basename "$unit")"
done
install -m 644 "$debian/sysusers.conf" "$usr/lib/sysusers.d/dormouse.conf"
install -m 644 "$debian/lintian-overrides" "$usr/share/lintian/overrides/dormouse"
install -m 644 "$debian"/etc/*.env "$package/etc/dormouse/"
install -m 644 "$root"/deploy/nats/cluster*.conf "$package/etc/dormouse/nats/"

# Debian's places for what other systems keep elsewhere.
mkdir -p "$usr/share/zsh/vendor-completions"
mv "$usr/share/zsh/site-functions/_dormouse" "$usr/share/zsh/vendor-completions/_dormouse"
rmdir "$usr/share/zsh/site-functions"
gzip -9n "$usr"/share/man/man1/*.1
documents=$usr/share/doc/dormouse
rm -f "$documents/LICENSE"
install -m 644 "$debian/copyright" "$documents/copyright"
mv "$documents/THIRD-PARTY-LICENCES.txt" "$documents/THIRD-PARTY-LICENCES"
cat >"$documents/changelog" <<CHANGELOG
dormouse ($version) unstable; urgency=medium

  * CHANGELOG.md.gz in this folder says what is new.

 -- $maintainer  $(LC_ALL=C date -R -u -d "@$SOURCE_DATE_EPOCH")
CHANGELOG
gzip -9n "$documents"/{changelog,CHANGELOG.md,THIRD-PARTY-LICENCES}

for script in postinst prerm postrm; do install -m 755 "$debian/$script" "$package/DEBIAN/$script"; done
(cd "$package" && find etc -type f | LC_ALL=C sort | sed 's#^#/#') >"$package/DEBIAN/conffiles"
(cd "$package" && find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum) >"$package/DEBIAN/md5sums"
size=$(du -k -s --apparent-size "$package" | cut -f1)
cat >"$package/DEBIAN/control" <<CONTROL
Package: dormouse
Version: $version
Architecture: $architecture
Maintainer: $maintainer
Installed-Size: $size
Depends: systemd | systemd-standalone-sysusers
Recommends: ca-certificates, openssl
Suggests: docker.io, python3
Section: admin
Priority: optional
Description: control plane for shared machine-learning clusters
 Dormouse shares one cluster among machine-learning jobs. Every job gets a
 partition, a set of equal containers. Partitions are resized while the jobs
 run, so that the cluster is full and the shares are fair.
 .
 The package holds the program, its broker nats-server, the library for parts
 of GPUs, examples, and units for the services of a cluster. No unit starts
 by itself.
CONTROL
chmod -R u=rwX,go=rX "$package"
name=dormouse_${version}_$architecture.deb
# One thread: the number of threads shapes the compressed file.
dpkg-deb --root-owner-group -Zxz -z"${DORMOUSE_PACKAGE_LEVEL:-9}" --threads-max=1 --build "$package" "$out/$name" >/dev/null
printf '%s\n' "$name"
