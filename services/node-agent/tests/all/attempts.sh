# What a hostile job tries. A section begins with `#: name`, and is a program of /bin/sh.
#
# - It prints HARM with what it reached, or (last) TRIED: one that prints neither has tried nothing.
# - `#: name !` may be killed before it says anything. Other words say where it is tried, if not everywhere:
#   `plain` processes; those of them that may listen on their `own-ports` only; Docker in the network of its
#   `host`; Docker with a network of its own and `published` ports. In Docker the first process is the tenant's own. `disk`: to evade a share of the disk; each is
#   tried by a tenant of its own, which must be stopped (disk.rs).
# - $VICTIM_PID, $VICTIM_DIR, $VICTIM_CHECKPOINT, $VICTIM_PORT: another tenant's container, on the node.
# - $NODE_DIR: the agent's folder; $OPERATOR: a folder of the operator's that everybody may read;
#   $GRANTED and $GRANTED_RO: folders that the job mounts; $SUPERVISOR_PID; $SOCKET: an abstract name; $LOOPBACK:
#   a port on the node's loopback.

#: shadow
cat /etc/shadow && echo HARM

#: secret-of-the-agent
cat $NODE_DIR/secret && echo HARM

#: marks-of-the-agent
ls $NODE_DIR/marks && echo HARM

#: socket-of-the-supervisor
[ -e $NODE_DIR/supervisor/socket ] && echo HARM

#: directory-of-another
cat $VICTIM_DIR/own && echo HARM

#: directories-of-the-node
for other in $NODE_DIR/containers/*; do [ "${other##*/}" = mal ] || [ "${other##*/}" = '*' ] || echo HARM $other; done

#: checkpoint-of-another
cat $VICTIM_CHECKPOINT/own && echo HARM

#: write-to-the-checkpoint-of-another
(echo x >$VICTIM_CHECKPOINT/forged) && echo HARM

#: temporary-files-of-another
cat /tmp/victim && echo HARM; cat /var/tmp/victim && echo HARM

#: shared-memory-of-another
cat /dev/shm/victim && echo HARM

#: write-to-programs
(echo x >/usr/bin/forged) && echo HARM; (echo x >/usr/local/forged) && echo HARM

#: write-to-configuration
(echo x >/etc/forged) && echo HARM; (echo x >>/etc/passwd) && echo HARM

#: write-to-the-root
(echo x >/forged) && echo HARM; mkdir /forged && echo HARM

#: home-of-root
ls -A /root | grep . && echo HARM; ls -A /home | grep . && echo HARM

#: folder-that-was-not-granted
cat $OPERATOR/notes && echo HARM

#: out-of-a-granted-folder
cat $GRANTED/../notes && echo HARM

#: write-to-what-is-granted-read-only
(echo x >$GRANTED_RO/forged) && echo HARM
cat $GRANTED_RO/data >/dev/null || echo HARM it cannot be read

#: make-it-writable-again
mount -o remount,rw,bind $GRANTED_RO && echo HARM
python3 -c 'import ctypes, os; libc = ctypes.CDLL(None); print("HARM" if libc.mount(None, os.environ["GRANTED_RO"].encode(), None, 32|4096, None) == 0 else "")'

#: hard-link-to-a-secret
ln /etc/shadow ./shadow && echo HARM

#: link-to-a-secret
ln -s /etc/shadow shadow; cat shadow && echo HARM

#: root-of-the-first-process plain
ls /proc/1/root/ && echo HARM; ls /proc/1/cwd/ && echo HARM

#: environment-of-the-first-process plain
cat /proc/1/environ && echo HARM

#: files-of-the-first-process plain
ls /proc/1/fd && echo HARM

#: memory-of-the-first-process plain
head -c 1 /proc/1/mem && echo HARM; cat /proc/1/maps | grep . && echo HARM

#: processes-of-the-node
[ -d /proc/$VICTIM_PID ] && grep -q VICTIM /proc/$VICTIM_PID/environ && echo HARM
ls -d /proc/[0-9]* | wc -l | { read count; [ $count -le 12 ] || echo HARM $count processes; }

#: signals-to-another
kill -9 $VICTIM_PID && echo HARM

#: signals-to-the-supervisor
kill -9 $SUPERVISOR_PID && echo HARM; kill -STOP $SUPERVISOR_PID && echo HARM

#: signals-to-everybody
trap '' TERM; kill -TERM -1; sleep 0.2

#: signals-to-the-first-process plain
kill -9 1; kill -STOP 1; sleep 0.2; kill -0 1 && echo HARM

#: trace-another
python3 -c 'import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for pid in (int(os.environ["VICTIM_PID"]), int(os.environ["SUPERVISOR_PID"])):
    if libc.ptrace(16, pid, 0, 0) == 0: print("HARM", pid)'

#: trace-the-first-process plain
python3 -c 'import ctypes
if ctypes.CDLL(None).ptrace(16, 1, 0, 0) == 0: print("HARM")'

#: raw-disks
for disk in /dev/sd? /dev/vd? /dev/nvme*; do [ -e $disk ] && head -c 1 $disk && echo HARM; done

#: make-a-device
mknod ./disk b 254 0 && echo HARM; mknod ./memory c 1 1 && echo HARM

#: system-requests
(echo h >/proc/sysrq-trigger) && echo HARM; (echo x >/dev/kmsg) && echo HARM

#: settings-of-the-kernel
(echo 1 >/proc/sys/vm/overcommit_memory) && echo HARM; (echo '|/tmp/x' >/proc/sys/kernel/core_pattern) && echo HARM

#: settings-of-devices
for file in /sys/kernel/mm/transparent_hugepage/enabled /sys/power/state; do (echo never >$file) && echo HARM; done

#: socket-of-the-engine
[ -S /var/run/docker.sock ] && echo HARM; [ -S /run/docker.sock ] && echo HARM

#: mount-something
mkdir m; mount -t tmpfs none m && echo HARM; mount --bind /etc m && echo HARM

#: namespaces-of-its-own
unshare -m true && echo HARM; unshare -p true && echo HARM

#: root-in-a-namespace-of-users
unshare -Ur cat /etc/shadow && echo HARM
unshare -Urm sh -c 'mount -o remount,rw / && echo x >/etc/forged' && echo HARM

#: another-root
chroot / true && echo HARM

#: unmount-what-is-in-the-way
umount /tmp && echo HARM; umount -l / && echo HARM

#: become-root
python3 -c 'import os
for change in (lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.setgroups([0])):
    try:
        change(); print("HARM")
    except OSError: pass'

#: become-another-tenant
python3 -c 'import os
try:
    os.setuid(os.getuid() + 1); print("HARM")
except OSError: pass'

#: capabilities
grep -E '^Cap(Inh|Prm|Eff|Bnd|Amb)' /proc/self/status | grep -v 0000000000000000 && echo HARM

#: new-privileges
grep -q 'NoNewPrivs:.1' /proc/self/status || echo HARM

#: set-user-programs
[ "$(id -u)" != 0 ] || echo HARM
cp /usr/bin/id ./id; chmod 4755 ./id; ./id -u | grep -x 0 && echo HARM
for program in /bin/su /usr/bin/sudo /bin/mount; do [ -u $program ] && $program -c true root </dev/null && echo HARM; done

#: groups
[ "$(id -G | wc -w)" = 1 ] || echo HARM $(id -G)

#: give-files-away
touch f; chown 0:0 f && echo HARM; chown $(($(id -u) + 1)) f && echo HARM

#: priorities
nice -n -5 true 2>&1 | grep -q . || echo HARM; chrt -f 10 true && echo HARM

#: first-to-survive
(echo -1 >/proc/self/oom_score_adj) && echo HARM

#: limits
(ulimit -c unlimited) && echo HARM; (ulimit -n 10000000) && echo HARM
[ $(ulimit -Hn) -le 65536 ] || echo HARM $(ulimit -Hn) open files

#: core-files
sh -c 'kill -SEGV $$'; ls core* /tmp/core* && echo HARM

#: clock
date -s 2001-01-01 && echo HARM

#: name-of-the-node
hostname forged && echo HARM

#: modules
modprobe dummy && echo HARM; [ -e /lib/modules ] && insmod /lib/modules/none.ko 2>/dev/null && echo HARM

#: packets
python3 -c 'import socket
for kind in ((socket.AF_PACKET, socket.SOCK_RAW, 3), (socket.AF_INET, socket.SOCK_RAW, 1)):
    try:
        socket.socket(*kind); print("HARM")
    except OSError: pass'

#: ports-of-the-system plain host
python3 -c 'import socket
try:
    socket.socket().bind(("127.0.0.1", 79)); print("HARM")
except OSError: pass'

#: interfaces
ip link set lo down && echo HARM; ip addr add 127.9.9.9/8 dev lo && echo HARM

#: control-groups
for tree in memory cpu pids unified .; do
  for file in /sys/fs/cgroup/$tree/cgroup.procs /sys/fs/cgroup/$tree/tasks; do (echo $$ >$file) && echo HARM; done
done 2>/dev/null

#: queues-and-segments-of-another
python3 -c 'import ctypes
libc = ctypes.CDLL(None, use_errno=True)
if libc.shmget(0x4d4f5553, 1, 0) >= 0: print("HARM a segment")
if libc.msgget(0x4d4f5553, 0) >= 0: print("HARM a queue")'

#: segments-left-behind
python3 -c 'import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.shmget(0x4c454654, 4096, 0o1666); libc.msgget(0x4c454654, 0o1666)'
echo x >/dev/shm/left-behind; echo x >/tmp/left-behind

#: loopback-of-the-node published
python3 -c 'import os, socket
with socket.socket() as it:
    it.settimeout(2)
    if it.connect_ex(("127.0.0.1", int(os.environ["LOOPBACK"]))) == 0: print("HARM")'

#: abstract-sockets plain published
python3 -c 'import os, socket
try:
    socket.socket(socket.AF_UNIX).connect("\0" + os.environ["SOCKET"]); print("HARM")
except OSError: pass'

#: keys-of-others
python3 -c 'import ctypes, platform
libc = ctypes.CDLL(None, use_errno=True)
call = {"x86_64": (248, 249, 250), "aarch64": (217, 218, 219)}[platform.machine()]
if libc.syscall(call[0], b"user", b"mine", b"x", 1, -3) >= 0: print("HARM add_key")
if libc.syscall(call[1], b"user", b"mine", None, -3) >= 0: print("HARM request_key")
if libc.syscall(call[2], 0, -3, 0) >= 0: print("HARM keyctl")'

#: namespace-of-users
unshare -U true && echo HARM; unshare -Un true && echo HARM; unshare -UC true && echo HARM

#: namespaces-by-clone
python3 -c 'import ctypes, os, platform
libc = ctypes.CDLL(None, use_errno=True)
call = {"x86_64": 56, "aarch64": 220}[platform.machine()]
for flag in (0x10000000, 0x20000, 0x20000000, 0x40000000, 0x8000000, 0x4000000, 0x2000000):
    pid = libc.syscall(call, flag | 0x10000000 | 17, 0, 0, 0, 0)
    if pid == 0: os._exit(0)
    if pid > 0: print("HARM clone", hex(flag))'

#: namespaces-by-clone3
python3 -c 'import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True)
args = ctypes.create_string_buffer(struct.pack("8Q", 0x10000000, 0, 0, 0, 17, 0, 0, 0))
pid = libc.syscall(435, args, 64)
if pid == 0: os._exit(0)
if pid > 0: print("HARM clone3")'

#: namespaces-of-another
python3 -c 'import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for pid in ("1", os.environ["VICTIM_PID"], "self"):
    for name in ("mnt", "pid", "net", "ipc", "user"):
        try: fd = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY)
        except OSError: continue
        if libc.setns(fd, 0) == 0: print("HARM", pid, name)'

#: mounts-by-descriptor
python3 -c 'import ctypes
libc = ctypes.CDLL(None, use_errno=True)
if libc.syscall(428, -100, b"/", 0x1) >= 0: print("HARM open_tree")
if libc.syscall(430, b"tmpfs", 0) >= 0: print("HARM fsopen")
if libc.syscall(433, -100, b"/", 0) >= 0: print("HARM fspick")
if libc.syscall(442, -100, b"/", 0, bytes(32), 32) >= 0: print("HARM mount_setattr")'

#: files-by-handle
python3 -c 'import ctypes
libc = ctypes.CDLL(None, use_errno=True)
handle = ctypes.create_string_buffer(b"\x08\0\0\0\x01\0\0\0\x02\0\0\0\0\0\0\0" + bytes(120))
for fd in (0, -100):
    if libc.open_by_handle_at(fd, handle, 0) >= 0: print("HARM")'

#: programs-of-the-kernel
python3 -c 'import ctypes, platform
libc = ctypes.CDLL(None, use_errno=True)
bpf, perf, fault = {"x86_64": (321, 298, 323), "aarch64": (280, 241, 282)}[platform.machine()]
if libc.syscall(bpf, 0, bytes(ctypes.c_ulong(0)) + b"\x04\0\0\0" * 18, 72) >= 0: print("HARM bpf")
attributes = (ctypes.c_uint32 * 32)(1, 128)
if libc.syscall(perf, attributes, 0, -1, -1, 0) >= 0: print("HARM perf_event_open")
if libc.syscall(fault, 1) >= 0: print("HARM userfaultfd")'

#: queues-of-requests-to-the-kernel plain
python3 -c 'import ctypes
if ctypes.CDLL(None).syscall(425, 1, (ctypes.c_uint32 * 32)()) >= 0: print("HARM io_uring")'

#: kernels-and-modules
python3 -c 'import ctypes, platform
libc = ctypes.CDLL(None, use_errno=True)
kexec, module, file = {"x86_64": (246, 175, 313), "aarch64": (104, 105, 273)}[platform.machine()]
EPERM = 1
def tried(name, *arguments):
    if libc.syscall(*arguments) >= 0 or ctypes.get_errno() != EPERM: print("HARM", name, ctypes.get_errno())
tried("kexec_load", kexec, 0, 0, None, 0)
tried("init_module", module, b"x", 1, b"")
tried("finit_module", file, 0, b"", 0)'

#: clocks
python3 -c 'import ctypes, time
libc = ctypes.CDLL(None, use_errno=True)
try:
    time.clock_settime(time.CLOCK_REALTIME, time.time()); print("HARM")
except OSError: pass
if libc.settimeofday(bytes(16), None) == 0: print("HARM settimeofday")'

#: restarts-and-swap
python3 -c 'import ctypes
libc = ctypes.CDLL(None, use_errno=True)
if libc.reboot(0x4321fedc) == 0 or libc.reboot(0) == 0: print("HARM reboot")
if libc.swapon(b"/tmp/none", 0) == 0: print("HARM swapon")
if libc.acct(b"/tmp/none") == 0: print("HARM acct")
if libc.klogctl(3, ctypes.create_string_buffer(64), 64) > 0: print("HARM syslog")'

#: descriptors-of-another
python3 -c 'import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for pid in (1, int(os.environ["VICTIM_PID"])):
    if pid == os.getpid() or pid == os.getppid(): continue
    fd = libc.syscall(434, pid, 0)
    if fd >= 0 and libc.syscall(438, fd, 0, 0) >= 0: print("HARM pidfd_getfd", pid)'

#: memory-of-another
python3 -c 'import ctypes, os, platform
libc = ctypes.CDLL(None, use_errno=True)
call = {"x86_64": 310, "aarch64": 270}[platform.machine()]
class Vector(ctypes.Structure): _fields_ = [("at", ctypes.c_void_p), ("length", ctypes.c_size_t)]
into = ctypes.create_string_buffer(8)
for pid in (int(os.environ["VICTIM_PID"]), int(os.environ["SUPERVISOR_PID"])):
    for at in range(0x400000, 0x800000, 0x1000):
        own, other = Vector(ctypes.addressof(into), 8), Vector(at, 8)
        if libc.syscall(call, pid, ctypes.byref(own), 1, ctypes.byref(other), 1, 0) > 0: print("HARM", pid)'

#: personalities
python3 -c 'import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.personality.argtypes = [ctypes.c_ulong]
if libc.personality(0x0040000) >= 0 and libc.personality(0xffffffff) & 0x40000: print("HARM")'

#: sockets-of-the-hypervisor plain
python3 -c 'import socket
try:
    socket.socket(socket.AF_VSOCK); print("HARM")
except OSError: pass'

#: words-in-the-mouth-of-a-terminal plain
python3 -c 'import fcntl, pty, termios
own, other = pty.openpty()
try:
    fcntl.ioctl(other, termios.TIOCSTI, b"x"); print("HARM")
except OSError: pass'

#: terminals-of-its-own plain
python3 -c 'import os, pty
own, other = pty.openpty()
name = os.ttyname(other)
if not name.startswith("/dev/pts/"): print("HARM", name)
if sorted(os.listdir("/dev/pts")) != sorted([name.rsplit("/", 1)[1], "ptmx"]): print("HARM", os.listdir("/dev/pts"))' || echo HARM

#: devices
for file in /dev/*; do [ -b $file ] && echo HARM $file; done
for file in /dev/mem /dev/kmem /dev/port /dev/kvm /dev/fuse /dev/net/tun /dev/loop-control /dev/uinput /dev/vhost-net; do [ -e $file ] && echo HARM $file; done
(echo x >/dev/forged) && echo HARM; mkdir /dev/folder && echo HARM; rm -f /dev/null && echo HARM

#: places-of-the-first-process plain
for name in exe cwd root; do readlink /proc/1/$name && echo HARM $name; done
for name in mem environ auxv maps syscall stack io; do [ -r /proc/1/$name ] && head -c 1 /proc/1/$name | grep -q . && echo HARM $name; done
for number in 0 1 2 3 4 5 6 7 8 9; do (: </proc/1/fd/$number) && echo HARM $number; done
(echo 1000 >/proc/1/oom_score_adj) && echo HARM

#: kernels-memory
for file in /proc/kcore /proc/kmsg /proc/kpageflags /proc/kallsyms /proc/keys /proc/timer_list; do head -c 64 $file | grep -vE '^0+ ' | grep -q . && [ $file != /proc/keys ] && [ $file != /proc/timer_list ] && echo HARM $file; done
true

#: keys-that-are-listed plain
grep -vE ' (_ses|_uid|_tid|_pid)' /proc/keys | grep -q . && echo HARM $(cat /proc/keys)

#: ports-of-another own-ports
python3 -c 'import os, socket
own = int(os.environ["OWN_PORT"])
for port in list(range(own - 64, own)) + list(range(own + 8, own + 72)) + [8080, 31999, 40404]:
    for family, host in ((socket.AF_INET, ""), (socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::")):
        try:
            with socket.socket(family) as it: it.bind((host, port)); it.listen(); print("HARM", port)
        except OSError: pass
for port in list(range(own, own + 8)) + [0]:
    with socket.socket() as it: it.bind(("", port)); it.listen()' || echo HARM its own ports

#: ports-of-another-by-other-forms-of-tcp own-ports
python3 -c 'import os, socket
own = int(os.environ["OWN_PORT"])
for family, protocol in ((socket.AF_INET, 262), (socket.AF_INET6, 262), (socket.AF_INET, 256), (43, 0)):
    for port in (own + 8, own - 8, 23456):
        try:
            with socket.socket(family, socket.SOCK_STREAM, protocol) as it: it.bind(("", port)); it.listen(); print("HARM", protocol)
        except OSError: pass'

#: descriptors-left-open
ls /proc/self/fd | grep -vx '[0-3]' && echo HARM

#: environment-of-the-agent
env | grep -E 'CARGO|RUST|DORMOUSE_NKEY|DORMOUSE_TOOLS' && echo HARM

#: children-that-stay
setsid sh -c 'sh -c "exec sleep 4242" & sh -c "exec sleep 4243" &' & sleep 0.1

#: too-many-processes !
python3 -c 'import os, time
made = 0
for _ in range(600):
    try:
        if os.fork() == 0: time.sleep(1); os._exit(0)
        made += 1
    except OSError: break
print("HARM" if made > 300 else "", made)'

#: fork-bomb !
python3 -c 'import os, time
end = time.time() + 1
while time.time() < end:
    try: os.fork()
    except OSError: pass'

#: too-much-memory !
python3 -c 'x = bytearray(300 << 20); print("HARM")'

#: too-much-shared-memory !
dd if=/dev/zero of=/dev/shm/x bs=1M count=300 && echo HARM

#: too-much-memory-in-temporary-files !
[ "$(stat -f -c %T /tmp)" = tmpfs ] && dd if=/dev/zero of=/tmp/x bs=1M count=300 && echo HARM; true

#: log-in-place-of-a-log
ln -sf /etc/shadow stdout.log.1 2>/dev/null; rm -f stderr.log; mkfifo stderr.log

#: large-file disk
head -c 20000000 /dev/zero >large

#: large-file-in-temporary-files disk
head -c 20000000 /dev/zero >/tmp/large

#: large-file-among-checkpoints disk
head -c 20000000 /dev/zero >$DORMOUSE_CHECKPOINT_DIR/large

#: large-file-behind-many-small-ones disk
python3 -c 'for number in range(10050): open(f"{number:05}", "w").close()
open("zzz", "wb").write(bytes(20000000))'

#: large-file-whose-name-is-no-text disk
python3 -c 'import os
os.mkdir(b"\xff"); open(b"\xff/\xfe", "wb").write(bytes(20000000))'

#: large-file-far-below disk
python3 -c 'import os
for _ in range(80): os.mkdir("d"); os.chdir("d")
open("large", "wb").write(bytes(20000000))'

#: large-file-without-a-name disk
exec python3 -c 'import os, time
file = open("large", "wb"); os.unlink("large"); file.write(bytes(20000000)); file.flush()
while True: time.sleep(1)'

#: large-file-that-is-only-mapped disk
exec python3 -c 'import mmap, os, time
file = open("large", "w+b"); os.unlink("large"); file.truncate(20000000)
held = mmap.mmap(file.fileno(), 20000000); file.close()
held.write(b"x" * 20000000)
while True: time.sleep(1)'

#: large-file-of-a-process-whose-first-thread-is-over disk
exec python3 -c 'import ctypes, os, threading, time
file = open("large", "wb"); os.unlink("large"); file.write(bytes(20000000)); file.flush()
threading.Thread(target=lambda: [time.sleep(1) for _ in range(1000)]).start()
ctypes.CDLL(None).syscall(60, 0)'

#: many-files disk
python3 -c 'for number in range(25000): open(f"{number}", "w").close()'
