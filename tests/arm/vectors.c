/* Numbers held in vector registers while a thread is stopped from outside; how many of them have changed. */
#include <stdint.h>

int stop;

static int differ(const uint8_t *found, const uint8_t *wanted, int count) {
    int changed = 0;
    for (int i = 0; i < count; i++)
        changed += found[i] != wanted[i];
    return changed;
}

/* All 32 registers of 16 bytes and the condition flags' neighbour FPCR, looked at once a turn of some thousand instructions. */
int hold_neon(void) {
    uint8_t wanted[64], found[64];
    int changed = 0;
    for (int i = 0; i < 64; i++)
        wanted[i] = (uint8_t)(i * 7 + 1);
    while (!*(volatile int *)&stop) {
        __asm__ volatile("ld1 {v0.16b-v3.16b}, [%0]\n"
                         "ld1 {v28.16b-v31.16b}, [%0]\n"
                         "mov x9, #20000\n"
                         "1: subs x9, x9, #1\n"
                         "b.ne 1b\n"
                         "st1 {v0.16b-v3.16b}, [%1]\n"
                         :
                         : "r"(wanted), "r"(found)
                         : "v0", "v1", "v2", "v3", "v28", "v29", "v30", "v31", "x9", "memory", "cc");
        changed += differ(found, wanted, 64);
        __asm__ volatile("st1 {v28.16b-v31.16b}, [%0]\n" : : "r"(found) : "memory");
    }
    return changed;
}

/* Whole SVE registers, beyond the 16 bytes that NEON sees, and a predicate. */
__attribute__((target("+sve"))) int hold_sve(void) {
    static uint8_t wanted[256], found[256];
    uint64_t bytes;
    int changed = 0;
    __asm__ volatile("rdvl %0, #1" : "=r"(bytes));
    for (int i = 0; i < 256; i++)
        wanted[i] = (uint8_t)(i * 11 + 3);
    while (!*(volatile int *)&stop) {
        __asm__ volatile("ptrue p0.b\n"
                         "ptrue p5.b\n"
                         "ld1b {z0.b}, p0/z, [%0]\n"
                         "ld1b {z31.b}, p0/z, [%0]\n"
                         "mov x9, #20000\n"
                         "1: subs x9, x9, #1\n"
                         "b.ne 1b\n"
                         "ptrue p0.b\n"
                         "st1b {z0.b}, p5, [%1]\n"
                         :
                         : "r"(wanted), "r"(found)
                         : "z0", "z31", "p0", "p5", "x9", "memory", "cc");
        changed += differ(found, wanted, (int)bytes);
        __asm__ volatile("ptrue p0.b\nst1b {z31.b}, p0, [%0]\n" : : "r"(found) : "p0", "memory");
        changed += differ(found, wanted, (int)bytes);
    }
    return changed;
}
