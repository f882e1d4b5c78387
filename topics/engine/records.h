/* engine/records */
