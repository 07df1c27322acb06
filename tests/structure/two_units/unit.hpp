// SPDX-License-Identifier: Apache-2.0
//
// The properties of Cupola that a translation unit was compiled with.
#pragma once

#include <string>

struct Unit {
    std::string isa;
    double sum_of_squares;
    const void* function;  // the address of an inline function of Cupola's
};

Unit first_unit();
Unit second_unit();
