// Other headers leave macros with everyday names behind: complex.h and sys/sysmacros.h of the C library, X11,
// Windows (whose min and max are switched off by NOMINMAX, as for Eigen). Ours must compile after them, given
// that the libraries we use were included before.
#include <Eigen/Core>
#include <nlohmann/json.hpp>

#include "standard_headers.hpp"

// NOLINTBEGIN
#define I 42
#define near
#define far
#define major(x) x
#define minor(x) x
#define linux 1
#define unix 1
#define Bool int
#define None 0L
#define Status int
#define Success 0
#define Always 2
#define True 1
#define False 0
#define ERROR 0
#define IN
#define OUT
#define CONST const
// NOLINTEND

#include "all_headers.hpp"
