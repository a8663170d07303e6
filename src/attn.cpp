// attn/src/attn.cpp - the target attn::compiled: what the headers declare as held by it.
#define ATTN_INSTANTIATE template
#include "attn/attn.hpp"
