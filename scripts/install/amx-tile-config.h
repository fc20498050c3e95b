// GCC's _tile_loadconfig says that it reads 8 of the 64 bytes, so the stores of the other 56 are
// removed as dead and the instruction faults. This one names all 64.
#if defined(__AMX_TILE__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>
#define _tile_loadconfig(config) \
    __asm__ volatile("ldtilecfg\t%X0" : : "m"(*(const char(*)[64])(config)))
#endif
