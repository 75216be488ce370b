#!/bin/sh
# Obeys the harness in a guest that runs systemd, as init.sh does in the small one: line by line, through a virtio-serial port.
# Each line is `NUMBER BASE64(script)`; each answer `NUMBER EXIT-CODE BASE64(output)`.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C
exec 3<>/dev/virtio-ports/harness
echo "ready 0 $(cut -d' ' -f1 /proc/uptime | base64)" >&3
while read -r number script <&3; do
    echo "$script" | base64 -d >"/run/script.$number"
    sh "/run/script.$number" >"/run/output.$number" 2>&1 </dev/null 3>&-
    code=$?
    echo "$number $code $(base64 -w 0 <"/run/output.$number")" >&3
    rm -f "/run/script.$number" "/run/output.$number"
done
