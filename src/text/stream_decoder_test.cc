#include "text/stream_decoder.h"

#include <gtest/gtest.h>
