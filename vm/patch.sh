#!/bin/sh
# Edits the source of user-mode Linux, in the top directory of an unpacked linux-source tree (tried with Debian's
# linux-source-6.1, 6.1.192). Safe to run again. Ends with an error when an edit does not apply: then this version of
# the source is not one that halfopen can build.
set -e

# 1. Hosts with AMX have an XSAVE area of 11008 bytes; user-mode Linux 6.1 reserves 2696 and panics
#    ("ptrace set fp regs failed, errno = 14"). Needs CONFIG_KERNEL_STACK_ORDER=4 as well.
sed -i 's/DEFINE_LONGS(HOST_FP_SIZE, 2696)/DEFINE_LONGS(HOST_FP_SIZE, 16384)/' arch/x86/um/user-offsets.c

# 2. The tick of Debian's stock kernels (user-mode Linux defaults to 100): TCP's timer wheel rounds by it.
sed -i '/^config HZ$/,/default/s/default 100/default 250/' arch/um/Kconfig

# 3. Basic mode: a real alarm that arrives after the event has passed must not set the time back (a panic).
sed -i '/^static void time_travel_handle_real_alarm/,/^}/s/^\ttime_travel_set_time(time_travel_next_event);/\tif (time_travel_next_event > time_travel_time)\n\t\ttime_travel_set_time(time_travel_next_event);/' arch/um/kernel/time.c

# 4. The guest's processes are children of the kernel's process, which traces them: they die with it (SIGKILL
#    included), also where the harness may not make a PID namespace around the guest.
sed -i 's/(void \*) *PTRACE_O_TRACESYSGOOD)/(void *)(PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL))/' arch/um/os-Linux/skas/process.c

# 5. Randomness that is the same in every boot: a constant stream in place of the host's, and no command line (which
#    carries the harness's process number) in the pool. Port numbers, hash tables and back-offs then repeat, and with
#    them whole runs. The guest is alone with itself: nothing in it is a secret.
sed -i '/^ssize_t os_getrandom/,/^}/s/^\treturn getrandom(buf, len, flags);/\tstatic unsigned long s = 0x9e3779b97f4a7c15UL;\n\tunsigned char *p = buf;\n\tsize_t i;\n\n\tfor (i = 0; i < len; i++) {\n\t\ts ^= s << 13;\n\t\ts ^= s >> 7;\n\t\ts ^= s << 17;\n\t\tp[i] = s >> 32;\n\t}\n\treturn len;/' arch/um/os-Linux/util.c
sed -i '/_mix_pool_bytes(command_line, strlen(command_line));/d' drivers/char/random.c

applied() { # what, pattern, file
    grep -q "$2" "$3" || { echo "edit '$1' does not apply to $3 of this source" >&2; exit 1; }
}
applied 'room for the XSAVE area' 'HOST_FP_SIZE, 16384' arch/x86/um/user-offsets.c
applied 'HZ 250' 'default 250' arch/um/Kconfig
applied 'no time set back' 'next_event > time_travel_time' arch/um/kernel/time.c
applied 'guests die with their kernel' 'PTRACE_O_EXITKILL' arch/um/os-Linux/skas/process.c
applied 'the same randomness in every boot' '0x9e3779b97f4a7c15UL' arch/um/os-Linux/util.c
if grep -q 'mix_pool_bytes(command_line' drivers/char/random.c; then
    echo "edit 'no command line in the pool' does not apply to drivers/char/random.c of this source" >&2
    exit 1
fi
