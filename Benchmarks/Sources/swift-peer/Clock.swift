import Glibc

/// Nanoseconds of CLOCK_MONOTONIC, which all processes of the machine share.
func now() -> Int {
    var time = timespec()
    clock_gettime(CLOCK_MONOTONIC, &time)
    return time.tv_sec * 1_000_000_000 + time.tv_nsec
}
