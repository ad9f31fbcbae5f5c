// One binary for every x86-64 machine: functions with this mark are compiled for several instruction sets,
// and the best one that the machine has is taken at start. Elsewhere, and under sanitizers (which run before
// that choice can be made), they are plain functions.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define MELETE_VECTOR_TARGETS __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define MELETE_VECTOR_TARGETS
#endif

// For what such functions call: only when inlined is it compiled for their instruction set.
#define MELETE_INLINE inline __attribute__((always_inline))
