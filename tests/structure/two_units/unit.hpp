// SPDX-License-Identifier: Apache-2.0
//
// What a translation unit tells of the Cupola that it was compiled with.
#pragma once

#include <string>

struct Unit {
    std::string isa;
    double sum_of_squares;
    const void* function;  // the address of an inline function of Cupola's
};

Unit first_unit();
Unit second_unit();
