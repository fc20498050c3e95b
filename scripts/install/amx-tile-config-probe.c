// A tile configuration as ggml fills it. Where the compiler keeps the store of `columns`, the
// assembly of this names the register that it comes in.
#include <immintrin.h>

void configure(unsigned char columns) {
    struct { unsigned char palette, start, zeros[14]; unsigned short bytes[16]; unsigned char rows[16]; }
        config __attribute__((aligned(64))) = {.palette = 1};
    config.rows[7] = columns;
    _tile_loadconfig(&config);
}
