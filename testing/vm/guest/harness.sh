#!/bin/sh
# Obeys the harness, line by line, through a virtio-serial port: as a service where systemd runs, in
# init.sh where that is all there is. Each line is `NUMBER BASE64(script)`; each answer `NUMBER
# EXIT-CODE BASE64(output)`.
exec 3<>"${harness:-/dev/virtio-ports/harness}"
echo "ready 0 $(cut -d' ' -f1 /proc/uptime | base64)" >&3
while read -r number script <&3; do
    echo "$script" | base64 -d >"/run/script.$number"
    # Neither the port nor its own script's output stays open in what a script leaves running.
    sh "/run/script.$number" >"/run/output.$number" 2>&1 </dev/null 3>&-
    code=$?
    echo "$number $code $(base64 -w 0 <"/run/output.$number")" >&3
    rm -f "/run/script.$number" "/run/output.$number"
done
