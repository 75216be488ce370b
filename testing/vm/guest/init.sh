#!/bin/sh
# The first process of a test's guest: mounts, modules, names of disks, network; then obeys the
# harness (harness.sh).
export PATH=/bin:/sbin:/usr/bin:/usr/sbin:/usr/lib/postgresql/bin HOME=/root LC_ALL=C
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm /run /tmp /mnt
mount -t devpts pts /dev/pts
mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t tmpfs run /run
chmod 1777 /tmp
chmod 755 /
# shellcheck disable=SC2013 # a word a line
for module in $(cat /etc/modules); do
    insmod "/modules/$module.ko" || echo "module $module: not loaded"
done
# Disks by the names that the harness gave them.
mkdir -p /dev/disk/by-id
for disk in /sys/block/vd*; do
    [ -e "$disk/serial" ] || continue
    ln -s "/dev/${disk##*/}" "/dev/disk/by-id/virtio-$(cat "$disk/serial")"
done
[ -e /dev/disk/by-id/virtio-usr ] && mount -t ext4 -o ro /dev/disk/by-id/virtio-usr /usr
ip link set lo up
if [ -e /sys/class/net/eth0 ]; then
    ip link set eth0 up
    ip addr add 10.0.2.15/24 dev eth0
fi
for port in /sys/class/virtio-ports/*; do
    # shellcheck disable=SC2034 # harness.sh reads it
    [ "$(cat "$port/name")" = harness ] && harness=/dev/${port##*/}
done
# shellcheck source=/dev/null
[ -e /etc/boot ] && . /etc/boot
# shellcheck source=/dev/null
. /harness
