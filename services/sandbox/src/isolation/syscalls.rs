//! The system call filter: the calls of Docker's default profile, except those tied to capabilities.
//!
//! 1. The init ([`restrict_init`]) may also enter the sandbox. Other calls fail with `ENOSYS`, which programs
//!    expect of newer calls. `clone3` is among them, because a filter cannot see its flags.
//! 2. A program ([`restrict_program`]) gets `EPERM` for calls refused by name.
//!
//! The init installs the long filter before its container comes. A 32-bit program is killed.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use nix::libc::*;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Length, SeccompCmpOp as Compare,
    SeccompCondition as Condition, SeccompFilter, SeccompRule, TargetArch, apply_filter,
};

const ALLOWED: &[c_long] = &[
    SYS_accept,
    SYS_accept4,
    SYS_adjtimex,
    SYS_bind,
    SYS_brk,
    SYS_capget,
    SYS_capset,
    SYS_chdir,
    SYS_clock_adjtime,
    SYS_clock_getres,
    SYS_clock_gettime,
    SYS_clock_nanosleep,
    SYS_clone,
    SYS_close,
    SYS_close_range,
    SYS_connect,
    SYS_copy_file_range,
    SYS_dup,
    SYS_dup3,
    SYS_epoll_create1,
    SYS_epoll_ctl,
    SYS_epoll_pwait,
    SYS_epoll_pwait2,
    SYS_eventfd2,
    SYS_execve,
    SYS_execveat,
    SYS_exit,
    SYS_exit_group,
    SYS_faccessat,
    SYS_faccessat2,
    SYS_fadvise64,
    SYS_fallocate,
    SYS_fanotify_mark,
    SYS_fchdir,
    SYS_fchmod,
    SYS_fchmodat,
    SYS_fchown,
    SYS_fchownat,
    SYS_fcntl,
    SYS_fdatasync,
    SYS_fgetxattr,
    SYS_flistxattr,
    SYS_flock,
    SYS_fremovexattr,
    SYS_fsetxattr,
    SYS_fstat,
    SYS_fstatfs,
    SYS_fsync,
    SYS_ftruncate,
    SYS_futex,
    SYS_futex_waitv,
    SYS_get_robust_list,
    SYS_getcpu,
    SYS_getcwd,
    SYS_getdents64,
    SYS_getegid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getgroups,
    SYS_getitimer,
    SYS_getpeername,
    SYS_getpgid,
    SYS_getpid,
    SYS_getppid,
    SYS_getpriority,
    SYS_getrandom,
    SYS_getresgid,
    SYS_getresuid,
    SYS_getrusage,
    SYS_getsid,
    SYS_getsockname,
    SYS_getsockopt,
    SYS_gettid,
    SYS_gettimeofday,
    SYS_getuid,
    SYS_getxattr,
    SYS_inotify_add_watch,
    SYS_inotify_init1,
    SYS_inotify_rm_watch,
    SYS_io_cancel,
    SYS_io_destroy,
    SYS_io_getevents,
    SYS_io_setup,
    SYS_io_submit,
    SYS_ioctl,
    SYS_ioprio_get,
    SYS_ioprio_set,
    SYS_kill,
    SYS_landlock_add_rule,
    SYS_landlock_create_ruleset,
    SYS_landlock_restrict_self,
    SYS_lgetxattr,
    SYS_linkat,
    SYS_listen,
    SYS_listxattr,
    SYS_llistxattr,
    SYS_lremovexattr,
    SYS_lseek,
    SYS_lsetxattr,
    SYS_madvise,
    SYS_membarrier,
    SYS_memfd_create,
    SYS_memfd_secret,
    SYS_mincore,
    SYS_mkdirat,
    SYS_mknodat,
    SYS_mlock,
    SYS_mlock2,
    SYS_mlockall,
    SYS_mmap,
    SYS_mprotect,
    SYS_mq_getsetattr,
    SYS_mq_notify,
    SYS_mq_open,
    SYS_mq_timedreceive,
    SYS_mq_timedsend,
    SYS_mq_unlink,
    SYS_mremap,
    SYS_mseal,
    SYS_msgctl,
    SYS_msgget,
    SYS_msgrcv,
    SYS_msgsnd,
    SYS_msync,
    SYS_munlock,
    SYS_munlockall,
    SYS_munmap,
    SYS_name_to_handle_at,
    SYS_nanosleep,
    SYS_newfstatat,
    SYS_openat,
    SYS_openat2,
    SYS_pidfd_open,
    SYS_pidfd_send_signal,
    SYS_pipe2,
    SYS_pkey_alloc,
    SYS_pkey_free,
    SYS_pkey_mprotect,
    SYS_ppoll,
    SYS_prctl,
    SYS_pread64,
    SYS_preadv,
    SYS_preadv2,
    SYS_prlimit64,
    SYS_process_mrelease,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_pselect6,
    SYS_ptrace,
    SYS_pwrite64,
    SYS_pwritev,
    SYS_pwritev2,
    SYS_read,
    SYS_readahead,
    SYS_readlinkat,
    SYS_readv,
    SYS_recvfrom,
    SYS_recvmmsg,
    SYS_recvmsg,
    SYS_remap_file_pages,
    SYS_removexattr,
    SYS_renameat2,
    SYS_restart_syscall,
    SYS_rseq,
    SYS_rt_sigaction,
    SYS_rt_sigpending,
    SYS_rt_sigprocmask,
    SYS_rt_sigqueueinfo,
    SYS_rt_sigreturn,
    SYS_rt_sigsuspend,
    SYS_rt_sigtimedwait,
    SYS_rt_tgsigqueueinfo,
    SYS_sched_get_priority_max,
    SYS_sched_get_priority_min,
    SYS_sched_getaffinity,
    SYS_sched_getattr,
    SYS_sched_getparam,
    SYS_sched_getscheduler,
    SYS_sched_rr_get_interval,
    SYS_sched_setaffinity,
    SYS_sched_setattr,
    SYS_sched_setparam,
    SYS_sched_setscheduler,
    SYS_sched_yield,
    SYS_seccomp,
    SYS_semctl,
    SYS_semget,
    SYS_semop,
    SYS_semtimedop,
    SYS_sendfile,
    SYS_sendmmsg,
    SYS_sendmsg,
    SYS_sendto,
    SYS_set_robust_list,
    SYS_set_tid_address,
    SYS_setfsgid,
    SYS_setfsuid,
    SYS_setgid,
    SYS_setgroups,
    SYS_setitimer,
    SYS_setpgid,
    SYS_setpriority,
    SYS_setregid,
    SYS_setresgid,
    SYS_setresuid,
    SYS_setreuid,
    SYS_setsid,
    SYS_setsockopt,
    SYS_setuid,
    SYS_setxattr,
    SYS_shmat,
    SYS_shmctl,
    SYS_shmdt,
    SYS_shmget,
    SYS_shutdown,
    SYS_sigaltstack,
    SYS_signalfd4,
    SYS_socket,
    SYS_socketpair,
    SYS_splice,
    SYS_statfs,
    SYS_statx,
    SYS_symlinkat,
    SYS_sync,
    SYS_syncfs,
    SYS_sysinfo,
    SYS_tee,
    SYS_tgkill,
    SYS_timer_create,
    SYS_timer_delete,
    SYS_timer_getoverrun,
    SYS_timer_gettime,
    SYS_timer_settime,
    SYS_timerfd_create,
    SYS_timerfd_gettime,
    SYS_timerfd_settime,
    SYS_times,
    SYS_tkill,
    SYS_truncate,
    SYS_umask,
    SYS_uname,
    SYS_unlinkat,
    SYS_utimensat,
    SYS_vmsplice,
    SYS_wait4,
    SYS_waitid,
    SYS_write,
    SYS_writev,
];

#[cfg(target_arch = "x86_64")]
const ALLOWED_OLDER: &[c_long] = &[
    SYS_access,
    SYS_alarm,
    SYS_arch_prctl,
    SYS_chmod,
    SYS_chown,
    SYS_creat,
    SYS_dup2,
    SYS_epoll_create,
    SYS_epoll_wait,
    SYS_eventfd,
    SYS_fork,
    SYS_futimesat,
    SYS_getdents,
    SYS_getpgrp,
    SYS_getrlimit,
    SYS_inotify_init,
    SYS_lchown,
    SYS_link,
    SYS_lstat,
    SYS_mkdir,
    SYS_mknod,
    SYS_modify_ldt,
    SYS_open,
    SYS_pause,
    SYS_pipe,
    SYS_poll,
    SYS_readlink,
    SYS_rename,
    SYS_renameat,
    SYS_rmdir,
    SYS_select,
    SYS_setrlimit,
    SYS_signalfd,
    SYS_stat,
    SYS_symlink,
    SYS_sync_file_range,
    SYS_time,
    SYS_unlink,
    SYS_utime,
    SYS_utimes,
    SYS_vfork,
];

#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_OLDER: &[c_long] = &[];

/// Newer calls unknown to the C library, equal everywhere: `cachestat`, `fchmodat2`, `map_shadow_stack`,
/// `futex_wake`, `futex_wait` and `futex_requeue`.
const ALLOWED_NEWER: &[c_long] = &[451, 452, 453, 454, 455, 456];

const OF_INIT: &[c_long] = &[
    SYS_mount,
    SYS_mount_setattr,
    SYS_move_mount,
    SYS_open_tree,
    SYS_pivot_root,
    SYS_umount2,
    SYS_unshare,
];

/// Refused: mounts, namespaces, keys, modules, clocks, others' descriptors, and calls with a history of
/// vulnerabilities.
const REFUSED: &[c_long] = &[
    SYS_acct,
    SYS_add_key,
    SYS_bpf,
    SYS_chroot,
    SYS_clock_settime,
    SYS_delete_module,
    SYS_fanotify_init,
    SYS_finit_module,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fsopen,
    SYS_fspick,
    SYS_get_mempolicy,
    SYS_init_module,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_io_uring_setup,
    SYS_kcmp,
    SYS_kexec_file_load,
    SYS_kexec_load,
    SYS_keyctl,
    SYS_lookup_dcookie,
    SYS_mbind,
    SYS_migrate_pages,
    SYS_mount,
    SYS_mount_setattr,
    SYS_move_mount,
    SYS_move_pages,
    SYS_open_by_handle_at,
    SYS_open_tree,
    SYS_perf_event_open,
    SYS_pidfd_getfd,
    SYS_pivot_root,
    SYS_process_madvise,
    SYS_quotactl,
    SYS_quotactl_fd,
    SYS_reboot,
    SYS_request_key,
    SYS_set_mempolicy,
    SYS_set_mempolicy_home_node,
    SYS_setdomainname,
    SYS_sethostname,
    SYS_setns,
    SYS_settimeofday,
    SYS_swapoff,
    SYS_swapon,
    SYS_syslog,
    SYS_umount2,
    SYS_unshare,
    SYS_userfaultfd,
    SYS_vhangup,
];

#[cfg(target_arch = "x86_64")]
const REFUSED_OLDER: &[c_long] = &[SYS_ioperm, SYS_iopl, SYS_sysfs, SYS_uselib, SYS_ustat];

#[cfg(not(target_arch = "x86_64"))]
const REFUSED_OLDER: &[c_long] = &[];

const NAMESPACES: [c_int; 7] = [
    CLONE_NEWCGROUP,
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
];

/// Terminal requests that inject input.
const TERMINAL_INPUT: [u64; 2] = [0x5412, 0x541C];

/// Address families of the hypervisor and of shared memory.
const FAMILIES: [c_int; 2] = [AF_VSOCK, 43];

/// Forms of TCP that use TCP's ports unseen by Landlock: over shared memory, and multipath.
const PROTOCOLS: [c_int; 2] = [256, IPPROTO_MPTCP];

/// Harmless personalities: the default, 32-bit uname, both, and the query.
const PERSONALITIES: [u64; 5] = [0, 0x8, 0x2_0000, 0x2_0008, 0xffff_ffff];

/// Both filters, compiled once and inherited by inits.
static FILTERS: LazyLock<Result<[BpfProgram; 2], String>> =
    LazyLock::new(|| Ok([filter_of_init()?, filter_of_program()?]));

fn condition(argument: u8, compare: Compare, value: u64) -> Result<SeccompRule, String> {
    let condition = Condition::new(argument, Length::Dword, compare, value);
    let rule = condition.and_then(|it| SeccompRule::new(vec![it]));
    rule.map_err(|error| error.to_string())
}

fn compile(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    action: SeccompAction,
) -> Result<BpfProgram, String> {
    let machine =
        TargetArch::try_from(std::env::consts::ARCH).map_err(|error| error.to_string())?;
    let filter = SeccompFilter::new(rules, otherwise, action, machine);
    let program = filter.and_then(BpfProgram::try_from);
    program.map_err(|error| error.to_string())
}

fn errno(number: c_int) -> SeccompAction {
    SeccompAction::Errno(number.unsigned_abs())
}

fn filter_of_init() -> Result<BpfProgram, String> {
    let lists = [ALLOWED, ALLOWED_OLDER, ALLOWED_NEWER, OF_INIT];
    let mut rules: BTreeMap<_, _> = lists
        .concat()
        .into_iter()
        .map(|call| (call, vec![]))
        .collect();
    let personalities = PERSONALITIES.map(|it| condition(0, Compare::Eq, it));
    let personalities = personalities.into_iter().collect::<Result<_, _>>()?;
    rules.insert(SYS_personality, personalities);
    compile(rules, errno(ENOSYS), SeccompAction::Allow)
}

fn filter_of_program() -> Result<BpfProgram, String> {
    let lists = [REFUSED, REFUSED_OLDER];
    let mut rules: BTreeMap<_, _> = lists
        .concat()
        .into_iter()
        .map(|call| (call, vec![]))
        .collect();
    let mut refuse = |call: c_long, argument: u8, mask: u64, value: u64| {
        let rule = condition(argument, Compare::MaskedEq(mask), value)?;
        rules.entry(call).or_default().push(rule);
        Ok::<_, String>(())
    };
    for flag in NAMESPACES.map(|flag| u64::from(flag.unsigned_abs())) {
        refuse(SYS_clone, 0, flag, flag)?;
    }
    let whole = u64::from(u32::MAX);
    for request in TERMINAL_INPUT {
        refuse(SYS_ioctl, 1, whole, request)?;
    }
    for family in FAMILIES {
        refuse(SYS_socket, 0, whole, u64::from(family.unsigned_abs()))?;
    }
    for protocol in PROTOCOLS {
        refuse(SYS_socket, 2, whole, u64::from(protocol.unsigned_abs()))?;
    }
    compile(rules, SeccompAction::Allow, errno(EPERM))
}

fn restrict(which: usize) -> Result<(), String> {
    let filters = FILTERS.as_ref().map_err(String::clone)?;
    apply_filter(&filters[which]).map_err(|error| error.to_string())
}

/// Compiles the filters, so that forks of this process inherit them.
pub fn prepare_filters() {
    LazyLock::force(&FILTERS);
}

/// Restricts this process to the calls of an init and its programs.
pub fn restrict_init() -> Result<(), String> {
    restrict(0)
}

/// Restricts this process to the calls of a program.
pub fn restrict_program() -> Result<(), String> {
    restrict(1)
}

#[cfg(test)]
mod tests {
    fn names(list: &str) -> Vec<&'static str> {
        let source = include_str!("syscalls.rs");
        let start = format!("const {list}: &[c_long] = &[\n");
        let body = source.split_once(&start).expect("the list").1;
        let body = body.split_once("];").expect("its end").0;
        body.split(|it: char| !(it.is_alphanumeric() || it == '_'))
            .filter_map(|name| name.strip_prefix("SYS_"))
            .collect()
    }

    #[test]
    fn the_documents_name_every_refused_call() {
        let page = include_str!("../../../../docs/reference/sandbox.md");
        let (_, refused) = page.split_once("These are refused").expect("a list");
        let names = names("REFUSED");
        assert!(names.len() > 30, "{names:?}");
        for name in names {
            assert!(refused.contains(&format!("`{name}`")), "{name}");
        }
    }

    #[test]
    fn no_call_is_both_allowed_and_refused() {
        let allowed = [super::ALLOWED, super::ALLOWED_OLDER, super::ALLOWED_NEWER].concat();
        let refused = [super::REFUSED, super::REFUSED_OLDER].concat();
        assert!(allowed.iter().all(|call| !refused.contains(call)));
        assert!(super::OF_INIT.iter().all(|call| refused.contains(call)));
    }

    #[test]
    fn the_filters_compile_for_this_machine() {
        assert!(
            super::FILTERS.is_ok(),
            "{:?}",
            super::FILTERS.as_ref().err()
        );
    }
}
