/* The limits of every emulated device, those of a GPU of compute capability 9.0. */
#ifndef COPSE_EMULATION_DEVICE_H
#define COPSE_EMULATION_DEVICE_H

namespace copse_emulation {
constexpr int capability_major = 9;
constexpr int max_block_threads = 1024;
constexpr int max_block_depth = 64;
constexpr int max_grid_width = 2147483647;
constexpr int max_grid_height = 65535;
constexpr int max_resident_blocks = 32; /* of a multiprocessor */
constexpr int shared_per_block = 48 << 10;
constexpr int shared_per_block_optin = 227 << 10;
constexpr int shared_per_multiprocessor = 228 << 10;
constexpr int shared_reserved = 1 << 10; /* of each block, by the system */
constexpr int greatest_priority = -5;
constexpr int max_parameter_bytes = 32764;
}  // namespace copse_emulation

#endif
